"""Times the programs of a task, interleaved, with cold or warm weights, as in their network.

The speed of a shared machine changes within seconds, so programs that run one after another are not comparable: of two
programs that differ by more than 3%, a second measurement reverses the order in one of seven pairs. The addresses of
the arguments change a latency as much. So the programs of a task are interleaved, with several placements of the
arguments. ``benchmarks/retest.py`` measures the effect.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Sequence
from typing import Any

from tvm_gnn_cost.measuring.machine import Tracker
from tvm_gnn_cost.schedulers.machines import machine_of
from tvm_gnn_cost.schedulers.scheduler import Machine

#: TVM's function that evicts all arguments from the caches except the first, the previous layer's output.
_FLUSH = "cache_flush_cpu_non_first_arg"

#: Runs in a row whose mean counts as a run of a program with warm weights.
_WARM_RUNS = 10

#: Runs of a program in a turn, runs of a slow program, and the latency from which a program is slow, in seconds.
_RUNS, _RUNS_OF_SLOW, _SLOW_S = 3, 1, 0.005

#: Budget of a program for each planned turn, including the cache eviction: long measurements are reproducible, so a
#: program that has spent its budget is not run again.
_SECONDS_A_TURN = 0.03

#: A round that took this many times as long as the fastest round is repeated, because the machine was busy.
_BUSY = 1.25

#: Maximum bytes of arguments of earlier repeats, which are kept so that new arguments get other addresses.
_KEPT_BYTES = 2**29


def run_on(
    tracker: Tracker | None,
    limit_s: float,
    programs: Sequence[tuple[str, Any]],
    repeats: int,
    turns: int,
    is_warm: bool,
) -> list[list[float] | str]:
    """Runs programs, interleaved, on this machine or a tracker's machine; the runner calls this in its worker process.

    Args:
        tracker: The RPC tracker of the machines; None for this machine.
        limit_s: Time limit of the session on a tracker's machine, in seconds.
        programs: See :func:`run_interleaved`.
        repeats: See :func:`run_interleaved`.
        turns: See :func:`run_interleaved`.
        is_warm: See :func:`run_interleaved`.

    Raises:
        WorkError: the tracker has no machine for us.
        ConnectionError: the connection to the machine is lost.
    """
    with machine_of(tracker, limit_s) as machine:
        return run_interleaved(programs, repeats, turns, machine, is_warm)


def run_interleaved(
    programs: Sequence[tuple[str, Any]], repeats: int, turns: int, machine: Machine, is_warm: bool = False
) -> list[list[float] | str]:
    """Runs programs, interleaved.

    Args:
        programs: Path of each built program, and its arguments; see ``BuiltProgram`` in ``turn_runner.py``.
        repeats: Number of repeats, each with a new placement of the arguments.
        turns: Number of rounds of a repeat; up to twice as many if the machine is busy.
        machine: Where the programs run.
        is_warm: Whether the weights stay in the caches; otherwise they are evicted before each run.

    Returns:
        For each program the fastest run of each repeat in seconds, or the message of its error. A slow program may have
        fewer repeats.

    Raises:
        ConnectionError: the connection to the machine is lost.
    """
    contestants = [_Program(machine, artifact, _SECONDS_A_TURN * turns * repeats, is_warm) for artifact, _ in programs]
    order = random.Random(0)
    kept: list[dict[Any, Any]] = []
    for _ in range(repeats):
        places: dict[Any, Any] = {}
        for program, (_, infos) in zip(contestants, programs, strict=True):
            program.start_repeat(infos, places)
        fastest, done, tries = math.inf, 0, 0
        while done < turns and tries < 2 * turns:
            tries += 1
            order.shuffle(contestants_now := [program for program in contestants if program.takes_part])
            taken = sum(program.turn() for program in contestants_now)
            if taken < _BUSY * fastest:
                done += 1
            fastest = min(fastest, taken)
        for program in contestants:
            program.end_repeat()
        kept.append(places)
        if sum(_bytes(program) for places in kept for program in places.values()) > _KEPT_BYTES:
            kept.clear()
    return [program.failure or program.seconds for program in contestants]


class _Program:
    """A program that is timed.

    Args:
        machine: Where it runs.
        artifact: Path of the built program.
        budget: Seconds after which it is not run again.
        is_warm: Whether its weights stay in the caches.

    Attributes:
        seconds: The fastest run of each repeat.
        failure: The message of its error; empty if there was none.
    """

    def __init__(self, machine: Machine, artifact: str, budget: float, is_warm: bool) -> None:
        self.machine = machine
        self.how: dict[str, Any] = {"number": _WARM_RUNS} if is_warm else {"number": 1, "f_preproc": _FLUSH}
        self.seconds: list[float] = []
        self.failure = ""
        self.last = self.fastest = math.inf
        self.budget = budget
        # Programs raise errors of any type.
        try:
            self.module = machine.load(artifact)
        except Exception as error:
            self._fail(error)

    @property
    def takes_part(self) -> bool:
        """Whether it has neither failed nor spent its budget."""
        measured = self.seconds or self.fastest < math.inf
        return not self.failure and not (measured and self.budget < 0)

    def start_repeat(self, infos: Sequence[Any], places: dict[Any, Any]) -> None:
        """Places the arguments of a repeat; programs share arguments of the same size, regardless of their layout."""
        self.fastest = math.inf
        if not self.takes_part:
            return
        try:
            self.arguments = [self.machine.place(places, i, info) for i, info in enumerate(infos)]
        except Exception as error:
            self._fail(error)

    def turn(self) -> float:
        """Runs the program a few times; returns the seconds of the fastest run."""
        runs, start = _RUNS if self.last < _SLOW_S else _RUNS_OF_SLOW, time.perf_counter()
        try:
            evaluator = self.module.time_evaluator(
                self.module.entry_name, self.machine.device(), repeat=runs, **self.how
            )
            seconds = [float(second) for second in evaluator(*self.arguments).results]
        except Exception as error:
            self._fail(error)
            return 0.0
        self.last = min(seconds)
        self.fastest = min(self.fastest, self.last)
        self.budget -= time.perf_counter() - start
        return self.last

    def _fail(self, error: Exception) -> None:
        self.machine.check()
        self.failure = str(error) or type(error).__name__

    def end_repeat(self) -> None:
        """Adds the latency of the repeat."""
        if self.fastest < math.inf:
            self.seconds.append(self.fastest)


def _bytes(memory: Any) -> int:
    """Approximate size of an argument: most dtypes have four bytes."""
    return 4 * math.prod(map(int, memory.shape))
