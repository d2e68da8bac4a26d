"""Times the programs of a task in turn, each as it runs in a network, where others have displaced its weights.

A shared machine's speed changes within seconds, so what runs one after another is not comparable: of two programs that
differ by more than 3%, a second measurement orders one pair in seven the other way round. Where the arguments lie in
memory changes a latency as much. So the programs of a task take turns, and do so at several places of the arguments.
``benchmarks/retest.py`` measures what that gives.
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

#: TVM's function that removes all arguments from the caches but the first, which the layer before has just written.
_FLUSH = "cache_flush_cpu_non_first_arg"

#: Runs of a fast program in a turn, and of one that takes longer than so many seconds.
_RUNS, _RUNS_OF_SLOW, _SLOW_S = 3, 1, 0.005

#: A program leaves when it has taken so many seconds for each turn of the plan, displacing its weights included: what
#: takes long repeats well.
_SECONDS_A_TURN = 0.03

#: A round in which the programs took so many times as long as in the fastest is run again: the machine was busy.
_BUSY = 1.25

#: Arguments of earlier repeats are kept, so that new ones lie elsewhere, until they take so many bytes.
_KEPT_BYTES = 2**29


def run_on(
    tracker: Tracker | None, limit_s: float, programs: Sequence[tuple[str, Any]], repeats: int, turns: int
) -> list[list[float] | str]:
    """Runs programs in turn on this machine or one of a tracker's; the runner calls this in its worker process.

    Args:
        tracker: Has the machines; None for this one.
        limit_s: A machine of the tracker ends the session after so many seconds.
        programs: See :func:`run_in_turn`.
        repeats: Likewise.
        turns: Likewise.

    Raises:
        WorkError: no machine of the tracker can be had.
        ConnectionError: the machine is gone.
    """
    with machine_of(tracker, limit_s) as machine:
        return run_in_turn(programs, repeats, turns, machine)


def run_in_turn(
    programs: Sequence[tuple[str, Any]], repeats: int, turns: int, machine: Machine
) -> list[list[float] | str]:
    """Runs programs in turn, each time with cold weights.

    Args:
        programs: Path of each built program, and its arguments; see ``BuiltProgram`` in ``turn_runner.py``.
        repeats: How many times the arguments are placed anew in memory.
        turns: How often each program has its turn in a repeat; twice as often at most, if the machine is busy.
        machine: Where they run.

    Returns:
        For each program its fastest run of each repeat in seconds, or the message of the error that it raised. A slow
        program may have fewer repeats.

    Raises:
        ConnectionError: the machine is gone.
    """
    contestants = [_Program(machine, artifact, _SECONDS_A_TURN * turns * repeats) for artifact, _ in programs]
    order = random.Random(0)
    kept: list[dict[Any, Any]] = []
    for _ in range(repeats):
        places: dict[Any, Any] = {}
        for one, (_, infos) in zip(contestants, programs, strict=True):
            one.start_repeat(infos, places)
        fastest, done, tries = math.inf, 0, 0
        while done < turns and tries < 2 * turns:
            tries += 1
            order.shuffle(contestants_now := [one for one in contestants if one.takes_part])
            taken = sum(one.turn() for one in contestants_now)
            if taken < _BUSY * fastest:
                done += 1
            fastest = min(fastest, taken)
        for one in contestants:
            one.end_repeat()
        kept.append(places)
        if sum(_bytes(one) for some in kept for one in some.values()) > _KEPT_BYTES:
            kept.clear()
    return [one.failure or one.seconds for one in contestants]


class _Program:
    """A program that takes turns.

    Args:
        machine: Where it runs.
        artifact: Path of the built program.
        budget: Seconds after which it leaves.

    Attributes:
        seconds: Its fastest run of each repeat.
        failure: The message of the error that it raised; empty if there was none.
    """

    def __init__(self, machine: Machine, artifact: str, budget: float) -> None:
        self.machine = machine
        self.seconds: list[float] = []
        self.failure = ""
        self.last = self.fastest = math.inf
        self.budget = budget
        # What a program raises has any type.
        try:
            self.module = machine.load(artifact)
        except Exception as error:
            self._fail(error)

    @property
    def takes_part(self) -> bool:
        """Whether it has not failed, and has not run for long enough."""
        measured = self.seconds or self.fastest < math.inf
        return not self.failure and not (measured and self.budget < 0)

    def start_repeat(self, infos: Sequence[Any], places: dict[Any, Any]) -> None:
        """Takes the arguments of this repeat; programs share those of one size, whatever their layout."""
        self.fastest = math.inf
        if not self.takes_part:
            return
        try:
            self.arguments = [self.machine.place(places, i, info) for i, info in enumerate(infos)]
        except Exception as error:
            self._fail(error)

    def turn(self) -> float:
        """Runs a few times; returns the seconds of the fastest run."""
        runs, start = _RUNS if self.last < _SLOW_S else _RUNS_OF_SLOW, time.perf_counter()
        try:
            evaluator = self.module.time_evaluator(
                self.module.entry_name, self.machine.device(), number=1, repeat=runs, f_preproc=_FLUSH
            )
            found = [float(one) for one in evaluator(*self.arguments).results]
        except Exception as error:
            self._fail(error)
            return 0.0
        self.last = min(found)
        self.fastest = min(self.fastest, self.last)
        self.budget -= time.perf_counter() - start
        return self.last

    def _fail(self, error: Exception) -> None:
        self.machine.check()
        self.failure = str(error) or type(error).__name__

    def end_repeat(self) -> None:
        """Notes the repeat's latency."""
        if self.fastest < math.inf:
            self.seconds.append(self.fastest)


def _bytes(memory: Any) -> int:
    """Size of an argument, roughly: most dtypes have four bytes."""
    return 4 * math.prod(map(int, memory.shape))
