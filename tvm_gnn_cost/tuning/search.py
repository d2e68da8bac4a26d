"""Searches the tasks of a network: first a few programs of each task, then the tasks with the largest expected gain."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tvm_gnn_cost.errors import WorkError
from tvm_gnn_cost.measuring.bandwidth import CopySpeed, seconds_to_copy
from tvm_gnn_cost.measuring.machine import Tracker, timed
from tvm_gnn_cost.progress import Note, Progress, Stage, Step, TrialsMeasured
from tvm_gnn_cost.schedulers.scheduler import MeasureSettings, SearchSettings, Task, Tuning
from tvm_gnn_cost.tuning.result import CurvePoint, TaskResult, TuneResult

#: Maximum latency of a task relative to its equivalent task, after the first programs of both, for a further search.
_STILL_OPEN = 1.2


def search(
    scheduler: Tuning, tasks: Sequence[Task], model: Any, screening: Screening, listener: ResultListener
) -> None:
    """Measures programs of tasks until the budget of the listener's result is spent.

    Args:
        scheduler: The scheduler of the tasks and of the model.
        tasks: The tasks of the result, in its order.
        model: The cost model.
        screening: Selects the first programs of a task.
        listener: Receives events.

    Raises:
        InputError: the records in the work directory are damaged.
        WorkError: the search was interrupted; every batch measured before is recorded.
    """
    result, progress = listener.result, listener.progress
    settings = result.settings
    if not tasks:
        return
    if result.trials:
        progress(trials_measured(result, ""))
        progress(Stage(f"learning from the {result.trials} programs measured before"))
        scheduler.learn_records(model, tasks, listener.work_dir)
    progress(Stage("searching"))
    # With few trials, every task gets one or two, and the rest is for the search.
    share = settings.batch_size if settings.trials is None else settings.trials // len(tasks)
    screening.measure(tasks, max(1, min(share, settings.batch_size // 2)), listener)
    if listener.finished():
        return
    fastest = max((task.flops / task.latency for task in result.tasks if task.best is not None), default=0.0)
    later = SearchSettings(
        result.trials,
        settings.batch_size,
        settings.population_size,
        settings.seed,
        tuple(task.latency if is_open else 0.0 for task, is_open in zip(result.tasks, open_tasks(result), strict=True)),
        tuple(_floor(task, fastest, result.copies) for task in result.tasks),
        screening.tracker,
    )
    listener.next_part()
    scheduler.search(tasks, model, listener.work_dir, later, listener)


def _floor(task: TaskResult, fastest: float, copies: Sequence[CopySpeed]) -> float:
    """Estimated lower bound of a task's seconds.

    Args:
        task: The task.
        fastest: Operations per second of the fastest task; 0 if unknown.
        copies: The speed of the memory; empty if unknown.
    """
    # Noise, and that a task may be faster than all others so far.
    operations = task.flops / (1.05 * fastest) if fastest else 0.0
    # A copy writes half of its bytes, which takes longer than reading them.
    return max(operations, seconds_to_copy(task.bytes, copies) / 1.5 if copies else 0.0)


def open_tasks(result: TuneResult) -> list[bool]:
    """Whether to search each task on: it has been measured, has other programs, and may be part of the network."""
    used, rivals = result.used, result.rivals
    return [
        task.trials > 0
        and not task.exhausted
        and (used[i] or task.latency < _STILL_OPEN * result.tasks[rivals[i]].latency)
        for i, task in enumerate(result.tasks)
    ]


#: Number of tasks whose programs are built together, so that no core idles between tasks.
_TASKS_AT_ONCE = 8

#: Expected gain of a batch that is worth its time, relative to the network's latency.
_WORTHWHILE = 0.0005

#: Tasks that together take a smaller share of the network's time are not measured.
_NEGLIGIBLE = 0.002


#: Numbers of candidates that are scored for all tasks of a network together: when their best are measured, and when the
#: first of each is taken without a measurement. Sampling takes about 4 ms per candidate.
_TO_MEASURE, _TO_TAKE = 2400, 4800

#: Minimum and maximum number of candidates of a task.
_FEWEST, _MOST = 24, 512

#: Operations in the time of a byte of the arguments or results, to estimate the share of a task before any measurement.
_MACHINE_BALANCE = 10


def numbers_of_samples(tasks: Sequence[Task], results: Sequence[TaskResult], measured: bool = True) -> dict[str, int]:
    """Key of a task -> number of its candidates to score, in proportion to its estimated share of the network's time.

    Args:
        tasks: The tasks of a network.
        results: Their results, which know their operations and bytes.
        measured: Whether the best are measured afterwards; otherwise, each task gets twice as many.
    """
    costs = [result.weight * (result.flops + _MACHINE_BALANCE * result.bytes) for result in results]
    each = (_TO_MEASURE if measured else _TO_TAKE) / (sum(costs) or 1.0)
    numbers = [min(_MOST, max(_FEWEST, round(each * cost))) for cost in costs]
    return {task.key: number for task, number in zip(tasks, numbers, strict=True)}


class Screening:
    """Selects candidates of tasks by a cost model's scores.

    Args:
        scheduler: The scheduler of the tasks and of the model.
        model: The cost model.
        target: The target of the machine that measures.
        samples: Number of random candidates to score of each task, by the key of the task.
        seed: Seed of the samples.
        tracker: The RPC tracker of the machines that measure; None for this machine.
    """

    def __init__(
        self,
        scheduler: Tuning,
        model: Any,
        target: Any,
        samples: Mapping[str, int],
        seed: int,
        tracker: Tracker | None = None,
    ) -> None:
        self.scheduler, self.model, self.target, self.tracker = scheduler, model, target, tracker
        self.samples, self.seed = samples, seed
        self.seconds = dict.fromkeys(("initial population", "prediction", "building", "running", "model update"), 0.0)

    def rank(self, task: Task) -> list[Any]:
        """Random candidates of a task, best score first."""
        with timed(self.seconds, "initial population"):
            candidates = self.scheduler.sample(task, self.target, self.samples[task.key], self.seed)
        if not candidates:
            return []
        with timed(self.seconds, "prediction"):
            scores = self.scheduler.score(self.model, task, self.target, candidates)
        return [candidates[i] for i in np.argsort(-scores, kind="stable")]

    def measure(self, tasks: Sequence[Task], count: int, on: ResultListener) -> None:
        """Measures candidates of all tasks that are not negligible, slowest first; the model learns from them.

        Args:
            tasks: All tasks of the network, in the order of the listener's result.
            count: Number of candidates of each task; twice as many if its design space has no more.
            on: Receives events; tasks of its result with measured programs are skipped.

        Raises:
            WorkError: the listener reported an interruption.
        """
        results = on.result.tasks
        waiting = [i for i, task in enumerate(results) if not task.trials]
        waiting.sort(key=lambda i: -results[i].weight * results[i].latency)
        while waiting and not on.finished():
            if sum(results[i].weight * results[i].latency for i in waiting) < _NEGLIGIBLE * on.result.latency:
                break
            group, waiting = waiting[:_TASKS_AT_ONCE], waiting[_TASKS_AT_ONCE:]
            self._measure_group([(i, tasks[i]) for i in group], count, on)

    def _measure_group(self, group: Sequence[tuple[int, Task]], count: int, on: ResultListener) -> None:
        picked = []
        for place, task in group:
            on.progress(Step(f"searching: {task.name}"))
            ranked = self.rank(task)
            exhausted = len(ranked) <= min(2 * count, self.samples[task.key] - 1)
            on.result.tasks[place].exhausted = exhausted
            picked.append((task, ranked if exhausted else ranked[:count]))
        on.progress(Step(f"building and running programs of {len(group)} tasks"))
        outcomes = []
        measured = self.scheduler.measure(picked, self.target, MeasureSettings(tracker=self.tracker))
        for phase in ("building", *["running"] * (len(picked) - 1)):
            with timed(self.seconds, phase):
                outcomes.append(next(measured)[1])
        # An interrupted batch must not be recorded as failed programs.
        if on.interrupted():
            raise WorkError("interrupted")
        done = [(task, candidates, ran) for (task, candidates), ran in zip(picked, outcomes, strict=True)]
        self.scheduler.record(done, self.target, on.work_dir)
        for (place, _), (task, candidates, ran) in zip(group, done, strict=True):
            with timed(self.seconds, "model update"):
                self.scheduler.learn(self.model, task, self.target, candidates, ran)
            on.spent(self.seconds)
            on.measured(place, [outcome.latency for outcome in ran])


class ResultListener:
    """A :class:`~tvm_gnn_cost.schedulers.scheduler.SearchListener` that keeps a result up to date.

    Args:
        result: The result so far, including earlier runs.
        work_dir: Where it is saved after each batch.
        progress: Receives events.
        interrupted: Whether the user pressed Ctrl-C.
    """

    def __init__(self, result: TuneResult, work_dir: Path, progress: Progress, interrupted: Callable[[], bool]) -> None:
        self.result, self.work_dir = result, work_dir
        self.progress, self.interrupted = progress, interrupted
        self.start, self.before = time.perf_counter(), result.searching_seconds
        self.seconds = dict(result.seconds)

    @property
    def elapsed(self) -> float:
        """Seconds of preparation and search so far, including earlier runs."""
        return self.before + time.perf_counter() - self.start

    def finished(self) -> bool:
        """Whether the budget of trials or of minutes is spent."""
        return self.result.settings.covered_by(self.result.trials, self.elapsed)

    def worthwhile(self, gain: float) -> bool:
        """Whether a batch with this expected gain is worth its time; a budget of trials is always spent.

        If it is not, the result's ``stopped`` says so.
        """
        result = self.result
        if result.settings.trials is not None or gain >= _WORTHWHILE * result.latency:
            return True
        minutes, seconds = divmod(int(self.elapsed), 60)
        result.stopped = (
            f"stopped early after {minutes}:{seconds:02d}: another batch is expected to gain less than "
            f"{100 * _WORTHWHILE:g}% of the network's latency in every task"
        )
        self.progress(Note(result.stopped))
        return False

    def measured(self, task: int, latencies: Sequence[float]) -> None:
        """Adds a batch of programs of a task."""
        result = self.result
        result.tasks[task].add(latencies)
        # There is no sum before every large task is measured.
        if math.isfinite(result.latency):
            result.curve.append(CurvePoint(result.trials, self.elapsed, result.latency))
        result.save(self.work_dir)
        self.progress(trials_measured(result, result.tasks[task].name))

    def next_part(self) -> None:
        """Starts another part of the search, whose seconds :meth:`spent` counts from 0."""
        self.seconds = dict(self.result.seconds)

    def spent(self, seconds: Mapping[str, float]) -> None:
        """Adds the seconds of this part of the search to the earlier parts; the unaccounted rest is ``other``."""
        for phase, spent in seconds.items():
            self.result.seconds[phase] = self.seconds.get(phase, 0.0) + spent
        self.result.seconds["other"] = 0.0
        self.result.seconds["other"] = max(0.0, self.elapsed - self.result.searching_seconds)


def trials_measured(result: TuneResult, task: str) -> TrialsMeasured:
    """The event with the progress of a run."""
    return TrialsMeasured(task, result.trials, result.settings.trials, result.latency)


@contextmanager
def interruptible() -> Iterator[Callable[[], bool]]:
    """Ends a search after the current batch on Ctrl-C, and immediately on a second Ctrl-C.

    A KeyboardInterrupt in the middle of TVM's C++ code becomes a RuntimeError, gets lost, or crashes the interpreter; a
    callback of the search can raise an error safely.

    Yields a function that returns whether Ctrl-C was pressed.
    """
    pressed = threading.Event()

    def handler(_signal: int, _frame: Any) -> None:
        if pressed.is_set():
            raise KeyboardInterrupt
        pressed.set()

    # Only the main thread can set handlers, and receives Ctrl-C.
    in_main_thread = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, handler) if in_main_thread else None
    try:
        yield pressed.is_set
    except Exception:
        if pressed.is_set():
            raise KeyboardInterrupt from None
        raise
    finally:
        if in_main_thread:
            signal.signal(signal.SIGINT, before)
