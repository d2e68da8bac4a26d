"""Chooses the task that a search measures next."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.schedulers.meta_schedule.work_dir import mean_latency


@derived_object
class EagerGradient(ms.task_scheduler.PyTaskScheduler):  # type: ignore[misc]
    """Chooses each task once in turn, then the task with the most to gain (Ansor, Zheng et al. 2020, section 6.2).

    MetaSchedule's ``GradientBased`` chooses likewise, but takes in the measurements of a task only when it chooses the
    task again. In the first round over a network it reports nothing, learns nothing and loses everything to a Ctrl-C.
    This one takes the measurements in as soon as a batch has run.

    Args:
        alpha: Weight of the task's gain in the last batches; its present latency has the rest.
        window: Number of batches that count as the last ones.
    """

    def __init__(self, alpha: float = 0.2, window: int = 3) -> None:
        super().__init__()
        self.alpha, self.window = alpha, window
        self.best: list[list[float]] = []
        self.running: int | None = None
        self.next_new = 0

    def next_task_id(self) -> int:
        """Takes in the batch that has just run and returns the next task, or -1 if no task has candidates left."""
        tasks = self._outer().tasks_
        self.best += [[] for _ in range(len(tasks) - len(self.best))]
        if self.running is not None and not tasks[self.running].is_terminated:
            self._note(self.running, self.join_running_task(self.running))
        self.running = self._choose(tasks)
        return self.running if self.running is not None else -1

    def _note(self, task: int, results: Sequence[Any]) -> None:
        before = self.best[task][-1] if self.best[task] else math.inf
        valid = [mean_latency(one.run_secs) for one in results if one.error_msg is None and one.run_secs]
        self.best[task].append(min([before, *valid]))

    def _choose(self, tasks: Sequence[Any]) -> int | None:
        while self.next_new < len(tasks):
            self.next_new += 1
            if not tasks[self.next_new - 1].is_terminated:
                return self.next_new - 1
        alive = [i for i, task in enumerate(tasks) if not task.is_terminated]
        return max(alive, key=lambda i: float(tasks[i].task_weight) * self._gain(self.best[i]), default=None)

    def _gain(self, best: Sequence[float]) -> float:
        """Seconds that another batch may save in one run of the task; 0 if no program of it has run yet."""
        if not best or math.isinf(best[-1]):
            return 0.0
        known = [latency for latency in best[-1 - self.window :] if math.isfinite(latency)]
        lately = (known[0] - best[-1]) / self.window if len(known) > self.window else best[-1]
        return self.alpha * lately + (1 - self.alpha) * best[-1] / len(best)
