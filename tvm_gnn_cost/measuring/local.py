"""Running programs on this machine so that their measured latencies can be trusted; talks to TVM."""

from __future__ import annotations

from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.measuring.exclusive import machine_to_itself


@derived_object
class ExclusiveRunner(ms.runner.PyRunner):  # type: ignore[misc]
    """A ``LocalRunner`` that holds :func:`machine_to_itself` while it runs programs."""

    def __init__(self, timeout_s: float, config: ms.runner.EvaluatorConfig) -> None:
        super().__init__()
        self.inner = ms.runner.LocalRunner(timeout_sec=timeout_s, evaluator_config=config)

    def run(self, runner_inputs: list[ms.runner.RunnerInput]) -> list[ms.runner.RunnerFuture]:
        """Runs the programs one after another; a failed one carries its error message."""
        with machine_to_itself():
            futures: list[ms.runner.RunnerFuture] = self.inner.run(runner_inputs)
        return futures


def local_runner(repeats: int = 3, min_repeat_ms: int = 30, timeout_s: float = 20.0) -> ExclusiveRunner:
    """A runner that takes ``repeats`` averages over at least ``min_repeat_ms`` milliseconds each."""
    return ExclusiveRunner(timeout_s, ms.runner.EvaluatorConfig(1, repeats, min_repeat_ms, False))
