"""Chooses the task that a search measures next."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.schedulers.meta_schedule.work_dir import latencies_of


@derived_object
class EagerGradient(ms.task_scheduler.PyTaskScheduler):  # type: ignore[misc]
    """Chooses the task with the most to gain (Ansor, Zheng et al. 2020, section 6.2).

    MetaSchedule's ``GradientBased`` chooses likewise, but takes in the measurements of a task only when it chooses the
    task again. In the first round over a network it reports nothing, learns nothing and loses everything to a Ctrl-C.
    This one takes the measurements in as soon as a batch has run. It also knows what was measured before, and how fast
    a task can become: a convolution that is as fast as the network's fastest one has little to gain.

    Args:
        latencies: Seconds of each task with the best schedule so far.
        floors: Seconds that no schedule of each task will go below.
        finished: Whether the search must end.
        alpha: Weight of the task's gain in the last batches; its present latency has the rest.
        window: Number of batches that count as the last ones.
    """

    def __init__(
        self,
        latencies: Sequence[float],
        floors: Sequence[float],
        finished: Callable[[], bool],
        alpha: float = 0.2,
        window: int = 3,
    ) -> None:
        super().__init__()
        self.best = [[latency] for latency in latencies]
        self.floors, self.finished = floors, finished
        self.alpha, self.window = alpha, window
        self.running: int | None = None

    def next_task_id(self) -> int:
        """Takes in the batch that has just run and returns the next task, or -1 if the search is over."""
        tasks = self._outer().tasks_
        if self.running is not None and not tasks[self.running].is_terminated:
            self._note(self.running, self.join_running_task(self.running))
        alive = [i for i, task in enumerate(tasks) if not task.is_terminated]
        self.running = None
        if alive and not self.finished():
            self.running = max(alive, key=lambda i: float(tasks[i].task_weight) * self._gain(i))
        return self.running if self.running is not None else -1

    def _note(self, task: int, results: Sequence[Any]) -> None:
        self.best[task].append(min([self.best[task][-1], *latencies_of(results)]))

    def _gain(self, task: int) -> float:
        """Seconds that another batch may save in one run of the task."""
        best = self.best[task]
        if math.isinf(best[-1]):
            # Nothing of it has run yet; it may be that nothing can.
            return math.inf if len(best) <= 3 else 0.0
        lately = (best[-1 - self.window] - best[-1]) / self.window if len(best) > self.window else best[-1]
        expected = self.alpha * lately + (1 - self.alpha) * best[-1] / len(best)
        return min(expected, max(0.0, best[-1] - self.floors[task]))
