"""Searches schedules with MetaSchedule, and reports each measured batch and the time by phase."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tvm_ffi
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.errors import WorkError
from tvm_gnn_cost.lowering.design_space import design_space
from tvm_gnn_cost.measuring.machine import PROCESS_WIDE
from tvm_gnn_cost.schedulers.meta_schedule.builder import PooledBuilder
from tvm_gnn_cost.schedulers.meta_schedule.runner import ExclusiveRunner
from tvm_gnn_cost.schedulers.meta_schedule.search_log import quiet_console, steps_from_log
from tvm_gnn_cost.schedulers.meta_schedule.verification import Check, TaskVerifier
from tvm_gnn_cost.schedulers.meta_schedule.work_dir import latencies_of, open_database
from tvm_gnn_cost.schedulers.scheduler import MeasureSettings, SearchListener, SearchSettings, Task

# An error that passes through TVM's C++ code, as that of an interruption does, would come out as a RuntimeError.
tvm_ffi.register_error(WorkError)

#: More programs than any search measures, because the listener ends the search.
_UNLIMITED = 2**24

#: Batches of a task of which no program runs, before it is given up.
_TRIES = 3

#: Expected gain of a task's first batch, as a share of what is left above the floor; factor of the expectation with
#: each further batch; and the latency relative to the one before from which on a batch has not improved a task.
_FIRST, _REST, _BETTER = 0.35, 0.65, 0.99

#: Phase -> timers of MetaSchedule's profiler, without nested timers.
_TIMERS = {
    "initial population": ("InitializeTask", "EvoSearch/SampleInitPopulation", "EvoSearch/PickBestFromDatabase"),
    "mutation": ("EvoSearch/Evolve/Mutation",),
    "prediction": ("EvoSearch/Evolve/PredictNormalizedScore",),
    "model update": ("MeasureCallback/UpdateCostModel",),
    "building": ("SendToBuilder",),
    "running": ("SendToRunner", "JoinRunnerFutures"),
}


def search(
    tasks: Sequence[Task],
    model: Any,
    verifier: TaskVerifier,
    work_dir: Path,
    settings: SearchSettings,
    on: SearchListener,
) -> None:
    """Searches schedules of all tasks; each batch is recorded in the work directory as soon as it is measured.

    Args:
        tasks: The tasks, extracted for the target of the machines that measure.
        model: A cost model of MetaSchedule.
        verifier: Verifies programs; its pool builds them.
        work_dir: The folder of the database and of MetaSchedule's logs.
        settings: How the search runs.
        on: Receives events.

    Raises:
        InputError: the database is damaged.
        WorkError: the search was interrupted.
    """
    database = open_database(work_dir)
    # A resumed search must not draw the same random programs again.
    seed = settings.seed + settings.measured
    with PROCESS_WIDE:
        quiet_console()
        # Not larger than the batch needs: every candidate takes milliseconds, which dominated the search.
        strategy = ms.search_strategy.EvolutionarySearch(
            population_size=settings.population_size,
            init_min_unmeasured=settings.population_size // 2,
            genetic_num_iters=2,
        )
        contexts, weights = ms.relax_integration.extracted_tasks_to_tune_contexts(
            [task.workload for task in tasks],
            str(work_dir),
            space=design_space(tasks[0].workload.target),
            strategy=strategy,
            seed=seed + 1,
        )
        order = EagerGradient(settings.latencies, settings.floors, on)

        def now() -> Task:
            """The current task."""
            return tasks[int(order.running or 0)]

        def check() -> Check:
            """The check of the current task."""
            return verifier.checks_of([now()])[0]

        with steps_from_log(on.progress, work_dir), ms.Profiler() as profiler:
            follower = Follower(on, profiler)
            try:
                ms.tune.tune_tasks(
                    tasks=contexts,
                    task_weights=weights,
                    work_dir=str(work_dir),
                    max_trials_global=_UNLIMITED,
                    num_trials_per_iter=settings.batch_size,
                    builder=PooledBuilder(verifier.pool, check),
                    runner=ExclusiveRunner(
                        MeasureSettings(tracker=settings.tracker), lambda: check().arguments, lambda: now().is_warm
                    ),
                    database=database,
                    cost_model=model,
                    measure_callbacks=[_Guard(on), *ms.MeasureCallback.create("default"), follower],
                    task_scheduler=order,
                )
            finally:
                follower.account()


@derived_object
class _Guard(ms.measure_callback.PyMeasureCallback):  # type: ignore[misc]
    """The first callback: a batch that Ctrl-C interrupted must not be recorded as failed programs."""

    def __init__(self, on: SearchListener) -> None:
        super().__init__()
        self.on = on

    def apply(
        self, _scheduler: Any, _task_id: int, _candidates: Sequence[Any], _built: Sequence[Any], _ran: Sequence[Any]
    ) -> None:
        """Ends an interrupted search; MetaSchedule calls this after each batch."""
        if self.on.interrupted():
            raise WorkError("interrupted")


@derived_object
class Follower(ms.measure_callback.PyMeasureCallback):  # type: ignore[misc]
    """The last callback: reports a batch after it was recorded.

    Args:
        on: Receives events.
        profiler: Times the phases of the search.
    """

    def __init__(self, on: SearchListener, profiler: ms.Profiler) -> None:
        super().__init__()
        self.on, self.profiler = on, profiler

    def apply(
        self, _scheduler: Any, task_id: int, _candidates: Sequence[Any], _built: Sequence[Any], ran: Sequence[Any]
    ) -> None:
        """Reports a batch; MetaSchedule calls this after each one."""
        self.account()
        self.on.measured(int(task_id), latencies_of(ran))

    def account(self) -> None:
        """Reports the seconds of each phase so far."""
        self.on.spent(phase_seconds({str(name): float(value) for name, value in self.profiler.get().items()}))


def phase_seconds(timers: Mapping[str, float]) -> dict[str, float]:
    """Seconds of each phase, from the seconds of MetaSchedule's timers."""
    return {phase: sum(timers.get(name, 0.0) for name in names) for phase, names in _TIMERS.items()}


@derived_object
class EagerGradient(ms.task_scheduler.PyTaskScheduler):  # type: ignore[misc]
    """Chooses the task from which another batch is expected to gain most (see :class:`ExpectedGain`).

    MetaSchedule's ``GradientBased`` processes the measurements of a task only when it chooses the task again: in the
    first round over a network it reports nothing, learns nothing and loses everything on Ctrl-C. This scheduler
    processes a batch as soon as it was run.

    Args:
        latencies: Seconds of each task with the best schedule so far.
        floors: Estimated lower bound of each task's seconds.
        on: Says whether the search must end.
    """

    def __init__(self, latencies: Sequence[float], floors: Sequence[float], on: SearchListener) -> None:
        super().__init__()
        self.tasks = [ExpectedGain(*task) for task in zip(latencies, floors, strict=True)]
        self.on = on
        self.running: int | None = None

    def next_task_id(self) -> int:
        """Processes the last batch and returns the next task, or -1 if the search is over."""
        tasks = self._outer().tasks_
        if self.running is not None and not tasks[self.running].is_terminated:
            self.tasks[self.running].add(latencies_of(self.join_running_task(self.running)))
        gains = {
            i: float(task.task_weight) * self.tasks[i].seconds for i, task in enumerate(tasks) if not task.is_terminated
        }
        self.running = None
        if gains and not self.on.finished() and self.on.worthwhile(max(gains.values())):
            # Of tasks without any expected gain, the one with the fewest batches, and last those not to be searched.
            self.running = max(gains, key=lambda i: (gains[i], self.tasks[i].best > 0, -self.tasks[i].batches))
        return self.running if self.running is not None else -1


class ExpectedGain:
    """What another batch of programs is expected to gain in a task.

    The first batch may gain a share of what is left above the floor. With each batch the expectation shrinks, unless
    the batch gained more: a task that has stopped improving rests. Ansor (Zheng et al. 2020, section 6.2) expects the
    latency divided by the number of batches, so that most batches go to the slowest task, whether it improves or not.

    Args:
        latency: Seconds of the task with the best schedule so far; 0 for a task that is not searched.
        floor: Estimated lower bound of its seconds.

    Attributes:
        seconds: The expected gain per run of the task.
        batches: Number of batches so far.

    >>> gain = ExpectedGain(20.0, floor=10.0)
    >>> gain.seconds
    3.5
    >>> gain.add([math.inf, 21.0])
    >>> gain.seconds
    2.275
    """

    def __init__(self, latency: float, floor: float) -> None:
        self.best, self.floor, self.batches = latency, floor, 0
        self.seconds = math.inf if math.isinf(latency) else _FIRST * self._left

    @property
    def _left(self) -> float:
        return max(0.0, self.best - self.floor)

    def add(self, latencies: Sequence[float]) -> None:
        """Takes in the latencies of a batch in seconds, infinite for a failure."""
        self.batches += 1
        before, self.best = self.best, min([self.best, *latencies])
        if math.isinf(self.best):
            # No program has run yet, and maybe none can.
            self.seconds = math.inf if self.batches < _TRIES else 0.0
        elif math.isinf(before):
            self.seconds = _FIRST * self._left
        else:
            gained = before - self.best if self.best < _BETTER * before else 0.0
            self.seconds = min(self._left, _REST * max(self.seconds, gained))
