"""Chooses the schedules that a network is compiled with, and verifies each of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tvm_gnn_cost.progress import Note, Progress, Stage, Step
from tvm_gnn_cost.schedulers.scheduler import Task
from tvm_gnn_cost.scoring.scorer import one_thread
from tvm_gnn_cost.tuning.result import StruckOff, TaskResult, TuneResult
from tvm_gnn_cost.tuning.search import Screening

#: Number of candidates of a task to verify before the task keeps its default schedule.
_TRIES = 4

#: Tasks whose candidates are verified together, while the candidates of the next tasks are sampled.
_TASKS_AT_ONCE = 8


@dataclass
class Choice:
    """The schedules of a network's tasks; other tasks have their default schedules.

    Attributes:
        tuned: The tasks with their fastest recorded schedule.
        chosen: The tasks with a candidate that was not measured, and this candidate.
    """

    tuned: list[Task] = field(default_factory=list)
    chosen: list[tuple[Task, Any]] = field(default_factory=list)


class Chooser:
    """Chooses each task's fastest schedule with the outputs of the task's unscheduled program.

    Args:
        screening: Ranks candidates of tasks of which no program was measured.
        tasks: All tasks of the network, in the order of the result.
        result: Receives the programs that are struck off.
        work_dir: The folder of the records.
        progress: Receives stages, steps, and a note for each program that is struck off.
    """

    def __init__(
        self, screening: Screening, tasks: Sequence[Task], result: TuneResult, work_dir: Path, progress: Progress
    ) -> None:
        self.screening, self.scheduler, self.target = screening, screening.scheduler, screening.target
        self.tasks, self.result, self.work_dir, self.progress = tasks, result, work_dir, progress
        #: Tasks that keep their default schedule.
        self.default: set[str] = set()
        self.unmeasured: dict[str, Any] = {}
        self.right: set[str] = set()

    def choose(self) -> Choice:
        """The schedules to compile with; verified schedules are not verified again."""
        while True:
            used = self._used()
            # TVM's default schedule of a task that the search did not reach can be a hundred times slower.
            unmeasured = [task for task, outcome in used if not outcome.trials or math.isinf(outcome.latency)]
            self._choose_unmeasured(unmeasured)
            if any(self._is_vain(task) for task, _ in used):
                continue
            improved = [task for task, outcome in used if outcome.improved and task.key not in self.default]
            # The successor of a program that is struck off is verified in the next round.
            if not self._verify_recorded([task for task in improved if task.key not in self.right]):
                chosen = [(task, self.unmeasured.get(task.key)) for task in unmeasured]
                return Choice(improved, [(task, candidate) for task, candidate in chosen if candidate is not None])

    def _used(self) -> list[tuple[Task, TaskResult]]:
        """The tasks of the compiled network."""
        used, rivals = self.result.used, self.result.rivals
        for i, task in enumerate(self.tasks):
            if self._is_vain(task):
                used[i], used[rivals[i]] = False, True
        rows = zip(self.tasks, self.result.tasks, used, strict=True)
        return [(task, outcome) for task, outcome, is_used in rows if is_used]

    def _is_vain(self, task: Task) -> bool:
        """Whether a task would replace another one but has no schedule, which leaves the other one in the network."""
        return bool(task.instead_of) and task.key in self.default

    def strike(self, task: Task, candidate: Any, why: str) -> None:
        """Excludes a candidate, and reports it.

        Args:
            task: Its task.
            candidate: The candidate.
            why: What is wrong with it, as a predicate.
        """
        self.result.struck.append(StruckOff(task.name, why, self.scheduler.describe(task, candidate)))
        self.progress(Note(f"a program of {task.name} is struck off: it {why}"))
        self.right.discard(task.key)
        self.result.save(self.work_dir)

    def strike_recorded(self, task: Task, why: str) -> None:
        """Excludes the fastest recorded candidate of a task, in its records too."""
        (candidate,) = self.scheduler.best([task], self.work_dir)
        self.scheduler.strike(task, candidate, self.work_dir)
        self.result.recount_trials(self.scheduler.latencies(self.tasks, self.work_dir))
        self.strike(task, candidate, why)

    def keep_default(self, tasks: Sequence[Task]) -> None:
        """Gives tasks their default schedules."""
        for task in tasks:
            self.default.add(task.key)
            self.unmeasured.pop(task.key, None)

    def _verify_recorded(self, tasks: Sequence[Task]) -> bool:
        """Verifies the fastest recorded program of each task; returns whether a program was struck off."""
        if not tasks:
            return False
        self.progress(Stage("verifying the fastest schedules"))
        best = list(zip(tasks, self.scheduler.best(tasks, self.work_dir), strict=True))
        faults = self.scheduler.faults(best, self.target)
        for task, why in zip(tasks, faults, strict=True):
            if why:
                self.strike_recorded(task, why)
            else:
                self.right.add(task.key)
        return any(faults)

    def _choose_unmeasured(self, tasks: Sequence[Task]) -> None:
        """Chooses the best-scored correct candidate of each task, without measuring."""
        new = [task for task in tasks if task.key not in self.unmeasured and task.key not in self.default]
        if not new:
            return
        self.progress(Stage("choosing schedules with the cost model"))
        for ranked, faults in self._ranked(new):
            left = [(task, candidates) for task, candidates in ranked if candidates]
            for task, candidates in ranked:
                if not candidates:
                    self.default.add(task.key)
            while left:
                again = []
                for (task, candidates), why in zip(left, faults, strict=True):
                    if not why:
                        self.unmeasured[task.key] = candidates[0]
                        continue
                    self.strike(task, candidates[0], why)
                    if candidates[1:]:
                        again.append((task, candidates[1:]))
                    else:
                        self.default.add(task.key)
                left = again
                faults = (
                    self.scheduler.faults([(task, candidates[0]) for task, candidates in left], self.target)
                    if left
                    else []
                )

    def _ranked(self, tasks: Sequence[Task]) -> Iterator[tuple[list[tuple[Task, list[Any]]], list[str]]]:
        """Yields groups of tasks with their best candidates, and the faults of each first candidate."""
        # Verification overlaps with sampling and scoring the next tasks.
        with ThreadPoolExecutor(1) as pool:
            waiting: list[tuple[list[tuple[Task, list[Any]]], Future[list[str]]]] = []
            with one_thread():
                for start in range(0, len(tasks), _TASKS_AT_ONCE):
                    group = []
                    for number, task in enumerate(tasks[start : start + _TASKS_AT_ONCE], start + 1):
                        self.progress(Step(f"choosing schedules: {number} of {len(tasks)} tasks, {task.name}"))
                        group.append((task, self.screening.rank(task)[:_TRIES]))
                    first = [(task, candidates[0]) for task, candidates in group if candidates]
                    waiting.append((group, pool.submit(self.scheduler.faults, first, self.target)))
            for group, faults in waiting:
                yield group, faults.result()
