"""Chooses the schedules that a network is compiled with; none of them goes in unverified."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from tvm_gnn_cost.progress import Note, Progress, Stage, Step
from tvm_gnn_cost.schedulers.scheduler import Task
from tvm_gnn_cost.tuning.result import StruckOff, TuneResult
from tvm_gnn_cost.tuning.search import Screening

#: Candidates of a task that the model may choose, one after the other, before the task keeps its default schedule.
_TRIES = 4

#: Tasks whose candidates are verified together, while those of the next ones are drawn.
_TASKS_AT_ONCE = 8


@dataclass
class Choice:
    """The schedules of a network's tasks; a task in neither has its default schedule.

    Attributes:
        tuned: The tasks that have their fastest recorded schedule.
        chosen: Tasks that have a candidate which was never measured.
    """

    tuned: list[Task] = field(default_factory=list)
    chosen: list[tuple[Task, Any]] = field(default_factory=list)


class Chooser:
    """Chooses each task's fastest schedule that computes what the task's program does before any schedule.

    Args:
        screening: Picks candidates of tasks that were not measured.
        tasks: All tasks of the network, in the order of the result.
        result: Gets the programs that are struck off.
        work_dir: The folder of the records.
        progress: Receives stages, steps, and a note for each program that is struck off.
    """

    def __init__(
        self, screening: Screening, tasks: Sequence[Task], result: TuneResult, work_dir: Path, progress: Progress
    ) -> None:
        self.screening, self.scheduler, self.target = screening, screening.scheduler, screening.target
        self.tasks, self.result, self.work_dir, self.progress = tasks, result, work_dir, progress
        #: Tasks that keep their default schedule, whatever was measured or chosen.
        self.default: set[str] = set()
        self.unmeasured: dict[str, Any] = {}
        self.right: set[str] = set()

    def choose(self) -> Choice:
        """The schedules to compile with; those that were verified before are not verified again."""
        while True:
            used = [
                (task, found)
                for task, found, used in zip(self.tasks, self.result.tasks, self.result.used, strict=True)
                if used
            ]
            self._choose_unmeasured([task for task, found in used if math.isinf(found.latency)])
            improved = [task for task, found in used if found.improved and task.key not in self.default]
            # What a program that is struck off has to give way to is verified in the next round.
            if not self._verify_recorded([task for task in improved if task.key not in self.right]):
                chosen = [(task, self.unmeasured.get(task.key)) for task, found in used if math.isinf(found.latency)]
                return Choice(improved, [(task, one) for task, one in chosen if one is not None])

    def strike(self, task: Task, candidate: Any, why: str, recorded: bool) -> None:
        """Leaves a program out, and says so.

        Args:
            task: Its task.
            candidate: The program.
            why: What is wrong, in a sentence without a subject.
            recorded: Whether it has a record.
        """
        struck = StruckOff(task.name, why, self.scheduler.describe(task, candidate))
        self.result.struck.append(struck)
        self.progress(Note(f"a program of {task.name} is struck off: it {why}"))
        if recorded:
            self.scheduler.strike(task, candidate, self.work_dir)
            self.result.recount_trials(self.scheduler.latencies(self.tasks, self.work_dir))
        self.right.discard(task.key)
        self.result.save(self.work_dir)

    def keep_default(self, tasks: Sequence[Task]) -> None:
        """Leaves tasks with their default schedules."""
        for task in tasks:
            self.default.add(task.key)
            self.unmeasured.pop(task.key, None)

    def _verify_recorded(self, tasks: Sequence[Task]) -> bool:
        """Verifies the fastest recorded program of each task; whether one was struck off."""
        if not tasks:
            return False
        self.progress(Stage("verifying the fastest schedules"))
        best = list(zip(tasks, self.scheduler.best(tasks, self.work_dir), strict=True))
        wrong = False
        for (task, candidate), why in zip(best, self.scheduler.faults(best, self.target), strict=True):
            if why:
                self.strike(task, candidate, why, recorded=True)
                wrong = True
            else:
                self.right.add(task.key)
        return wrong

    def _choose_unmeasured(self, tasks: Sequence[Task]) -> None:
        """Chooses the candidate of each task that the model takes for the fastest, if it is right; none is measured."""
        new = [task for task in tasks if task.key not in self.unmeasured and task.key not in self.default]
        if not new:
            return
        self.progress(Stage("choosing schedules with the cost model"))
        for ranked, faults in self._ranked(new):
            left = [(task, some) for task, some in ranked if some]
            for task, some in ranked:
                if not some:
                    self.default.add(task.key)
            while left:
                again = []
                for (task, some), why in zip(left, faults, strict=True):
                    if not why:
                        self.unmeasured[task.key] = some[0]
                        continue
                    self.strike(task, some[0], why, recorded=False)
                    if some[1:]:
                        again.append((task, some[1:]))
                    else:
                        self.default.add(task.key)
                left = again
                faults = self.scheduler.faults([(task, some[0]) for task, some in left], self.target) if left else []

    def _ranked(self, tasks: Sequence[Task]) -> Iterator[tuple[list[tuple[Task, list[Any]]], list[str]]]:
        """The best candidates of some tasks at a time, and what is wrong with the first of each that has any."""
        # While the other core draws and scores the next ones, which is Python for the most part.
        with ThreadPoolExecutor(1) as pool:
            waiting: list[tuple[list[tuple[Task, list[Any]]], Future[list[str]]]] = []
            with _one_thread():
                for start in range(0, len(tasks), _TASKS_AT_ONCE):
                    group = []
                    for number, task in enumerate(tasks[start : start + _TASKS_AT_ONCE], start + 1):
                        self.progress(Step(f"choosing schedules: {number} of {len(tasks)} tasks, {task.name}"))
                        group.append((task, self.screening.rank(task)[:_TRIES]))
                    first = [(task, some[0]) for task, some in group if some]
                    waiting.append((group, pool.submit(self.scheduler.faults, first, self.target)))
            for group, faults in waiting:
                yield group, faults.result()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Leaves the other cores to the processes that verify: threads of PyTorch keep a core busy while they wait for it.

    Predictions take a quarter of the time so.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
