"""Runs built programs of a task in turn, in a process of its own, on a machine that measures nothing else meanwhile."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from queue import Empty, SimpleQueue
from typing import Any

from tvm_gnn_cost.datasets.failure import Failure
from tvm_gnn_cost.measuring.exclusive import machine_to_itself
from tvm_gnn_cost.measuring.other_load import OtherLoad
from tvm_gnn_cost.schedulers.in_turn import run_on
from tvm_gnn_cost.schedulers.installed_tvm import PopenWorker
from tvm_gnn_cost.schedulers.machines import machines_of
from tvm_gnn_cost.schedulers.scheduler import MeasureSettings, Outcome

#: Cores that other processes may keep busy meanwhile: a program on all cores waits for the one that it has to share.
_QUIET = 0.2

#: How long to wait for a machine that other clients of the tracker have.
_WAIT_S = 600.0

#: Path of a built program, and kind, dtype and shape of each of its arguments, as ``ArgInfo.as_json`` gives them.
BuiltProgram = tuple[str, tuple[Any, ...]]


@cache
def turn_runner(settings: MeasureSettings) -> TurnRunner:
    """The runner for these settings; there is one, because its worker processes take seconds to start."""
    return TurnRunner(settings)


class TurnRunner:
    """Runs the programs of a batch in turn; its processes outlive the batch.

    Args:
        settings: How and where programs are measured.
    """

    def __init__(self, settings: MeasureSettings) -> None:
        self.settings = settings
        self.idle: SimpleQueue[PopenWorker] = SimpleQueue()

    def machines(self) -> int:
        """How many machines measure.

        Raises:
            WorkError: the tracker does not answer, or has none.
        """
        tracker = self.settings.tracker
        if tracker is None:
            return 1
        return len(machines_of(tracker))

    def run(self, programs: Sequence[BuiltProgram]) -> list[Outcome]:
        """The outcome of each program; all run on one machine.

        Raises:
            WorkError: no machine can be had.
        """
        if not programs:
            return []
        if self.settings.tracker is not None:
            return self._elsewhere(programs)
        with machine_to_itself():
            end = time.monotonic() + self.settings.patience_s
            while True:
                load = OtherLoad()
                outcomes = self._here(programs)
                if time.monotonic() >= end or load.cores() < _QUIET:
                    return outcomes

    def run_shared(self, programs: Sequence[BuiltProgram]) -> list[Outcome]:
        """The outcome of each program; every machine runs some of them.

        Raises:
            WorkError: no machine can be had.
        """
        parts = min(self.machines(), len(programs))
        if parts < 2:
            return self.run(programs)
        outcomes = [Outcome(())] * len(programs)
        with ThreadPoolExecutor(parts) as pool:
            for part, found in enumerate(pool.map(self.run, [programs[part::parts] for part in range(parts)])):
                outcomes[part::parts] = found
        return outcomes

    def _here(self, programs: Sequence[BuiltProgram]) -> list[Outcome]:
        """Runs programs in turn, or each alone if one of them crashes the process or hangs."""
        answer = self._answer(programs, 0.0)
        if isinstance(answer, list):
            return answer
        if len(programs) > 1:
            return [outcome for one in programs for outcome in self._here([one])]
        return [answer]

    def _elsewhere(self, programs: Sequence[BuiltProgram]) -> list[Outcome]:
        """Likewise on one of the tracker's machines; what a machine that is gone has lost, another one runs."""
        for _ in range(2):
            answer = self._answer(programs, _WAIT_S)
            if isinstance(answer, list):
                return answer
            if answer.failure == Failure.RUN_TIMEOUT:
                break
        if len(programs) > 1:
            return [outcome for one in programs for outcome in self._elsewhere([one])]
        return [answer]

    def _answer(self, programs: Sequence[BuiltProgram], wait_s: float) -> list[Outcome] | Outcome:
        """The outcome of each program, or the one of all if their process or their machine is gone or hangs.

        Args:
            programs: The programs.
            wait_s: How long other clients may have the machine.
        """
        settings = self.settings
        limit = settings.timeout_s * len(programs)
        worker = self._worker()
        try:
            call = (settings.tracker, limit, programs, settings.repeats, settings.turns)
            worker.send(run_on, call, timeout=limit + wait_s)
            return [_outcome(one) for one in worker.recv()]
        except TimeoutError:
            return Outcome((), Failure.RUN_TIMEOUT, f"not done within {settings.timeout_s} seconds")
        except (ChildProcessError, ConnectionError):  # of the worker, or of a machine elsewhere
            return Outcome((), Failure.RUN_ERROR, "the program crashed")
        finally:
            self.idle.put(worker)

    def _worker(self) -> PopenWorker:
        """A process that nobody uses now."""
        try:
            return self.idle.get_nowait()
        except Empty:
            # A new process now and then, for the libraries that it has loaded.
            return PopenWorker(maximum_uses=100, stderr=subprocess.DEVNULL)


def _outcome(found: list[float] | str) -> Outcome:
    return Outcome((), Failure.RUN_ERROR, found) if isinstance(found, str) else Outcome(tuple(found))
