"""Times a program as it runs in a network, where the other layers have displaced its weights from the caches."""

from __future__ import annotations

import math
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # worker processes import this module, and should start quickly
    from tvm.s_tir import meta_schedule as ms

#: TVM's function that removes all arguments from the caches but the first, which the layer before has just written.
_FLUSH = "cache_flush_cpu_non_first_arg"

#: Runs of a repeat at most. Displacing the weights takes many times as long as a fast program, and the latency does not
#: repeat better with more runs: a shared machine changes within seconds, not within milliseconds.
_MOST_RUNS = 5


def run_cold(
    program: Any, device: Any, config: ms.runner.EvaluatorConfig, repeated_arguments: list[list[Any]]
) -> list[float]:
    """Runs a program, each time with cold weights; a ``LocalRunner`` calls this in its worker process.

    Args:
        program: The built module.
        device: Where it runs.
        config: Its ``repeat`` and ``min_repeat_ms`` count.
        repeated_arguments: The program's arguments, once.

    Returns:
        The median latency of each repeat, in seconds.
    """
    (arguments,) = repeated_arguments

    def seconds(runs: int) -> list[float]:
        evaluator = program.time_evaluator(program.entry_name, device, number=1, repeat=runs, f_preproc=_FLUSH)
        return [float(one) for one in evaluator(*arguments).results]

    runs = min(_MOST_RUNS, max(1, math.ceil(config.min_repeat_ms / 1e3 / max(min(seconds(2)), 1e-7))))
    found = seconds(runs * config.repeat)
    return [median(found[i : i + runs]) for i in range(0, len(found), runs)]
