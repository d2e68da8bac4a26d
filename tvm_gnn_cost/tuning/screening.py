"""The first look at a network's tasks: the cost model picks candidates of each, and a few of them are measured."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tvm_gnn_cost.errors import WorkError
from tvm_gnn_cost.measuring.stopwatch import timed
from tvm_gnn_cost.measuring.tracker import Tracker
from tvm_gnn_cost.progress import Step
from tvm_gnn_cost.schedulers.scheduler import MeasureSettings, Scheduler, Task
from tvm_gnn_cost.tuning.listener import ResultListener

#: Tasks whose programs are built together, so that no core idles at the end of each task.
_TASKS_AT_ONCE = 8

#: Tasks are not measured while all of them together take a smaller share of the network than this.
_NEGLIGIBLE = 0.002


def samples_of_a_task(tasks: int) -> int:
    """Number of candidates of each task to score, fewer where there are many tasks: sampling takes milliseconds each.

    >>> samples_of_a_task(1), samples_of_a_task(20), samples_of_a_task(60), samples_of_a_task(300)
    (256, 120, 40, 24)
    """
    return min(256, max(24, 2400 // max(1, tasks)))


class Screening:
    """Picks candidates of tasks by a cost model's scores.

    Args:
        scheduler: The scheduler of the tasks and of the model.
        model: The cost model.
        target: The target of the machine that measures.
        samples: Number of random candidates of a task to score.
        seed: Seed of the samples.
        tracker: Has the machines that measure; None for this one.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        model: Any,
        target: Any,
        samples: int,
        seed: int,
        tracker: Tracker | None = None,
    ) -> None:
        self.scheduler, self.model, self.target, self.tracker = scheduler, model, target, tracker
        self.samples, self.seed = samples, seed
        self.seconds = dict.fromkeys(("initial population", "prediction", "building", "running", "model update"), 0.0)

    def rank(self, task: Task) -> list[Any]:
        """Random candidates of a task, the one with the best score first."""
        with timed(self.seconds, "initial population"):
            candidates = self.scheduler.sample(task, self.target, self.samples, self.seed)
        if not candidates:
            return []
        with timed(self.seconds, "prediction"):
            scores = self.scheduler.score(self.model, task, self.target, candidates)
        return [candidates[i] for i in np.argsort(-scores, kind="stable")]

    def measure(self, tasks: Sequence[Task], count: int, on: ResultListener) -> None:
        """Measures candidates of every task that matters, the slowest tasks first; the model learns from them.

        Args:
            tasks: All tasks of the network, in the order of the listener's result.
            count: Number of candidates of each task; twice as many if its design space has no more.
            on: Follows the search; a task of its result that has measured programs is left out.

        Raises:
            WorkError: the listener said that the search is interrupted.
        """
        found = on.result.tasks
        waiting = [i for i, task in enumerate(found) if not task.trials]
        waiting.sort(key=lambda i: -found[i].weight * found[i].latency)
        while waiting and not on.finished():
            if sum(found[i].weight * found[i].latency for i in waiting) < _NEGLIGIBLE * on.result.latency:
                break
            group, waiting = waiting[:_TASKS_AT_ONCE], waiting[_TASKS_AT_ONCE:]
            self._measure_group([(i, tasks[i]) for i in group], count, on)

    def _measure_group(self, group: Sequence[tuple[int, Task]], count: int, on: ResultListener) -> None:
        picked = []
        for place, task in group:
            on.progress(Step(f"searching: {task.name}"))
            ranked = self.rank(task)
            exhausted = len(ranked) <= min(2 * count, self.samples - 1)
            on.result.tasks[place].exhausted = exhausted
            picked.append((task, ranked if exhausted else ranked[:count]))
        on.progress(Step(f"building and running programs of {len(group)} tasks"))
        outcomes = []
        measured = self.scheduler.measure(picked, self.target, MeasureSettings(tracker=self.tracker))
        for phase in ("building", *["running"] * (len(picked) - 1)):
            with timed(self.seconds, phase):
                outcomes.append(next(measured)[1])
        # A batch that Ctrl-C has cut short would be recorded as failed programs.
        if on.interrupted():
            raise WorkError("interrupted")
        done = [(task, candidates, found) for (task, candidates), found in zip(picked, outcomes, strict=True)]
        self.scheduler.record(done, self.target, on.work_dir)
        for (place, _), (task, candidates, found) in zip(group, done, strict=True):
            with timed(self.seconds, "model update"):
                self.scheduler.learn(self.model, task, self.target, candidates, found)
            on.spent(self.seconds)
            on.measured(place, [one.latency for one in found])
