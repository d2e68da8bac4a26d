"""Follows a search: counts measured batches, adds points to the curve and saves the result."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from tvm_gnn_cost.progress import Progress, TrialsMeasured
from tvm_gnn_cost.tuning.result import CurvePoint, TuneResult


class ResultListener:
    """A :class:`~tvm_gnn_cost.schedulers.scheduler.SearchListener` that keeps a result up to date.

    Args:
        result: The result so far, of earlier runs too.
        work_dir: Where it is saved after each batch.
        progress: Receives the search's events.
        interrupted: Tells whether Ctrl-C was pressed.
    """

    def __init__(self, result: TuneResult, work_dir: Path, progress: Progress, interrupted: Callable[[], bool]) -> None:
        self.result, self.work_dir = result, work_dir
        self.progress, self.interrupted = progress, interrupted
        self.start, self.before = time.perf_counter(), result.searching_seconds
        self.seconds = dict(result.seconds)

    @property
    def elapsed(self) -> float:
        """Seconds of preparation and search so far, those of earlier runs included."""
        return self.before + time.perf_counter() - self.start

    def finished(self) -> bool:
        """Whether the budget of trials or of minutes is spent."""
        return self.result.settings.covered_by(self.result.trials, self.elapsed)

    def measured(self, task: int, latencies: Sequence[float]) -> None:
        """Takes in a batch of programs of one task."""
        result = self.result
        result.tasks[task].add(latencies)
        # Before every large task has been measured there is no sum.
        if math.isfinite(result.latency):
            result.curve.append(CurvePoint(result.trials, self.elapsed, result.latency))
        result.save(self.work_dir)
        self.progress(trials_measured(result, result.tasks[task].name))

    def next_part(self) -> None:
        """Begins another part of the search, whose seconds :meth:`spent` counts from 0 again."""
        self.seconds = dict(self.result.seconds)

    def spent(self, seconds: Mapping[str, float]) -> None:
        """Adds the seconds of this part of the search to those before; what no phase accounts for is ``other``."""
        for phase, spent in seconds.items():
            self.result.seconds[phase] = self.seconds.get(phase, 0.0) + spent
        self.result.seconds["other"] = 0.0
        self.result.seconds["other"] = max(0.0, self.elapsed - self.result.searching_seconds)


def trials_measured(result: TuneResult, task: str) -> TrialsMeasured:
    """The event that says how far a run is."""
    return TrialsMeasured(task, result.trials, result.settings.trials, result.latency)
