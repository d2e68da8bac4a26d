"""Runs built programs of a task, interleaved, in a separate process, with exclusive use of the machine."""

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
from tvm_gnn_cost.schedulers.interleaved import run_on
from tvm_gnn_cost.schedulers.machines import count_machines
from tvm_gnn_cost.schedulers.scheduler import MeasureSettings, Outcome

#: Tolerated load of other processes, in cores: a program on all cores waits for a shared core.
_QUIET = 0.2

#: Maximum wait for a machine that other clients of the tracker use, in seconds.
_WAIT_S = 600.0

#: Placeholder until a program has run.
_NOT_RUN = Outcome(())

#: Path of a built program, and kind, dtype and shape of each of its arguments as in ``ArgInfo.as_json``, with an
#: exclusive upper bound for integers that are indices.
BuiltProgram = tuple[str, tuple[Any, ...]]

T = TypeVar("T")
R = TypeVar("R")


@cache
def turn_runner(settings: MeasureSettings) -> TurnRunner:
    """The runner for these settings, shared because its worker processes take seconds to start."""
    return TurnRunner(settings)


class TurnRunner:
    """Runs the programs of a batch, interleaved, in processes that are reused for many batches.

    Args:
        settings: How and where programs are measured.
    """

    def __init__(self, settings: MeasureSettings) -> None:
        self.settings = settings
        self.idle: SimpleQueue[PopenWorker] = SimpleQueue()

    def machines(self) -> int:
        """Number of machines that measure.

        Raises:
            WorkError: the tracker does not answer, or has no machine.
        """
        return 1 if self.settings.tracker is None else count_machines(self.settings.tracker)

    def run(self, programs: Sequence[BuiltProgram]) -> list[Outcome]:
        """The outcome of each program; all run on one machine.

        Raises:
            WorkError: no machine is available.
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
        """The outcome of each program; they are split over all machines, and interleaved on each.

        Raises:
            WorkError: no machine is available.
        """
        machines = max(1, min(self.machines(), len(programs)))
        parts = [(slice(i, None, machines), partial(self.run, programs[i::machines])) for i in range(machines)]
        outcomes: list[Outcome] = [_NOT_RUN] * len(programs)
        for where, part in self.each(parts):
            outcomes[where] = part
        return outcomes

    def each(self, calls: Sequence[tuple[T, Callable[[], R]]]) -> Iterator[tuple[T, R]]:
        """Yields each key with the result of its call, in order; on several machines, calls run in parallel.

        Args:
            calls: Pairs of a key and a call that ends in :meth:`run`.
        """
        machines = min(self.machines(), len(calls))
        if machines < 2:
            yield from ((about, call()) for about, call in calls)
            return
        with ThreadPoolExecutor(machines) as pool:
            running = [(about, pool.submit(call)) for about, call in calls]
            try:
                yield from ((about, future.result()) for about, future in running)
            finally:
                for _, future in running:
                    future.cancel()

    def _here(self, programs: Sequence[BuiltProgram]) -> list[Outcome]:
        """Runs programs together, or one at a time if a program crashes the process or hangs."""
        answer = self._answer(programs)
        if isinstance(answer, list):
            return answer
        if len(programs) == 1:
            return [answer]
        return [outcome for program in programs for outcome in self._here([program])]

    def _elsewhere(self, programs: Sequence[BuiltProgram]) -> list[Outcome]:
        """The same on a machine of the tracker, with another try if the connection is lost."""
        answer = self._answer(programs, _WAIT_S)
        if not isinstance(answer, list) and answer.failure != Failure.RUN_TIMEOUT:
            answer = self._answer(programs, _WAIT_S)
        if isinstance(answer, list):
            return answer
        if len(programs) == 1:
            return [answer]
        return [outcome for program in programs for outcome in self._elsewhere([program])]

    def _answer(self, programs: Sequence[BuiltProgram], wait_s: float = 0.0) -> list[Outcome] | Outcome:
        """The outcome of each program, or a common outcome if the process or the machine crashes or hangs.

        Args:
            programs: The programs.
            wait_s: Maximum wait for the machine, in seconds.
        """
        settings = self.settings
        limit = settings.timeout_s * len(programs)
        worker = self._worker()
        try:
            call = (settings.tracker, limit, programs, settings.repeats, settings.turns, settings.is_warm)
            worker.send(run_on, call, timeout=limit + wait_s)
            return [_outcome(answer) for answer in worker.recv()]
        except WorkError as error:  # the message is the worker's traceback
            raise WorkError(last_line(error).removeprefix(f"{WorkError.__module__}.WorkError: ")) from None
        except TimeoutError:
            return Outcome((), Failure.RUN_TIMEOUT, f"not done within {settings.timeout_s} seconds")
        except (ChildProcessError, ConnectionError):  # of the worker, or of a tracker's machine
            return Outcome((), Failure.RUN_ERROR, "the program crashed")
        finally:
            self.idle.put(worker)

    def _worker(self) -> PopenWorker:
        """An idle process."""
        try:
            return self.idle.get_nowait()
        except Empty:
            # Loaded libraries accumulate, so a process is replaced now and then.
            return PopenWorker(initializer=use_all_cores, maximum_uses=100, stderr=subprocess.DEVNULL)


def _outcome(answer: list[float] | str) -> Outcome:
    return Outcome((), Failure.RUN_ERROR, answer) if isinstance(answer, str) else Outcome(tuple(answer))
