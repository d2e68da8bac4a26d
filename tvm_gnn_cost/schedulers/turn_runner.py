"""Runs built programs of a task in turn, in a process of its own, on a machine that measures nothing else meanwhile."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from tvm_gnn_cost.datasets.records import Failure, last_line
from tvm_gnn_cost.errors import WorkError
from tvm_gnn_cost.installed import PopenWorker
from tvm_gnn_cost.measuring.machine import OtherLoad, machine_to_itself, use_all_cores
from tvm_gnn_cost.schedulers.in_turn import run_on
from tvm_gnn_cost.schedulers.machines import count_machines
from tvm_gnn_cost.schedulers.scheduler import MeasureSettings, Outcome

#: Cores that other processes may keep busy meanwhile: a program on all cores waits for the one that it has to share.
_QUIET = 0.2

#: How long to wait for a machine that other clients of the tracker have.
_WAIT_S = 600.0

#: Stands for a program until it has run.
_NOT_RUN = Outcome(())

#: Path of a built program, and kind, dtype and shape of each of its arguments, as ``ArgInfo.as_json`` gives them; of
#: integers that it takes for indices, what they are below follows.
BuiltProgram = tuple[str, tuple[Any, ...]]

T = TypeVar("T")
R = TypeVar("R")


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
        return 1 if self.settings.tracker is None else count_machines(self.settings.tracker)

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

    def spread(self, programs: Sequence[BuiltProgram]) -> list[Outcome]:
        """The outcome of each program; they run on as many machines at once as measure, each machine's in turn.

        Raises:
            WorkError: no machine can be had.
        """
        machines = max(1, min(self.machines(), len(programs)))
        parts = [(slice(i, None, machines), partial(self.run, programs[i::machines])) for i in range(machines)]
        outcomes: list[Outcome] = [_NOT_RUN] * len(programs)
        for where, found in self.each(parts):
            outcomes[where] = found
        return outcomes

    def each(self, calls: Sequence[tuple[T, Callable[[], R]]]) -> Iterator[tuple[T, R]]:
        """Yields the result of each call with what belongs to it, in their order; as many at once as machines measure.

        Args:
            calls: Anything, and a call of :meth:`run` in whatever form.
        """
        machines = min(self.machines(), len(calls))
        if machines < 2:
            yield from ((about, call()) for about, call in calls)
            return
        with ThreadPoolExecutor(machines) as pool:
            running = [(about, pool.submit(call)) for about, call in calls]
            try:
                yield from ((about, one.result()) for about, one in running)
            finally:
                for _, one in running:
                    one.cancel()

    def _here(self, programs: Sequence[BuiltProgram]) -> list[Outcome]:
        """Runs programs in turn, or each alone if one of them crashes the process or hangs."""
        answer = self._answer(programs)
        if isinstance(answer, list):
            return answer
        return [answer] if len(programs) == 1 else [outcome for one in programs for outcome in self._here([one])]

    def _elsewhere(self, programs: Sequence[BuiltProgram]) -> list[Outcome]:
        """Likewise on one of the tracker's machines; what a machine that is gone has lost, another one runs."""
        answer = self._answer(programs, _WAIT_S)
        if not isinstance(answer, list) and answer.failure != Failure.RUN_TIMEOUT:
            answer = self._answer(programs, _WAIT_S)
        if isinstance(answer, list):
            return answer
        return [answer] if len(programs) == 1 else [outcome for one in programs for outcome in self._elsewhere([one])]

    def _answer(self, programs: Sequence[BuiltProgram], wait_s: float = 0.0) -> list[Outcome] | Outcome:
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
        except WorkError as error:  # its message is the traceback in the worker
            raise WorkError(last_line(error).removeprefix(f"{WorkError.__module__}.WorkError: ")) from None
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
            return PopenWorker(initializer=use_all_cores, maximum_uses=100, stderr=subprocess.DEVNULL)


def _outcome(found: list[float] | str) -> Outcome:
    return Outcome((), Failure.RUN_ERROR, found) if isinstance(found, str) else Outcome(tuple(found))
