"""Follows a MetaSchedule search: what it does now, what each batch found, and where its time goes; talks to TVM."""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.tuning.result import CurvePoint, TuneResult

_LOGGER = "tvm.s_tir.meta_schedule"
_OURS = "tvm_gnn_cost"

#: The profiler's timers that make up each phase. Timers nested in these are left out, or they would count twice.
_TIMERS = {
    "initial population": ("InitializeTask", "EvoSearch/SampleInitPopulation", "EvoSearch/PickBestFromDatabase"),
    "mutation": ("EvoSearch/Evolve/Mutation",),
    "prediction": ("EvoSearch/Evolve/PredictNormalizedScore",),
    "model update": ("MeasureCallback/UpdateCostModel",),
    "building": ("SendToBuilder",),
    "running": ("SendToRunner", "JoinRunnerFutures"),
}


class Progress(Protocol):
    """Told of every step; the command line draws it."""

    def status(self, text: str) -> None:
        """What is being done now."""

    def note(self, text: str) -> None:
        """Something that the user should know."""

    def measured(self, result: TuneResult, task: str) -> None:
        """A batch of programs of ``task`` was measured, or there are some from an earlier run."""


@derived_object
class Guard(ms.measure_callback.PyMeasureCallback):  # type: ignore[misc]
    """Goes first: a batch that Ctrl-C cut short must not reach the database as failed programs."""

    def __init__(self, interrupted: Callable[[], bool]) -> None:
        super().__init__()
        self.interrupted = interrupted

    def apply(
        self, _scheduler: Any, _task_id: int, _candidates: Sequence[Any], _built: Sequence[Any], _ran: Sequence[Any]
    ) -> None:
        """Ends the search after an interruption."""
        if self.interrupted():
            raise RuntimeError("interrupted")


@derived_object
class Follower(ms.measure_callback.PyMeasureCallback):  # type: ignore[misc]
    """Goes last: counts a measured batch, adds a point to the curve and saves the result."""

    def __init__(self, result: TuneResult, work_dir: Path, profiler: ms.Profiler, progress: Progress) -> None:
        super().__init__()
        self.result, self.work_dir, self.progress = result, work_dir, progress
        self.profiler = profiler
        self.start = time.perf_counter()
        self.before = result.curve[-1].seconds
        self.seconds = dict(result.seconds)

    def apply(
        self, _scheduler: Any, task_id: int, _candidates: Sequence[Any], _built: Sequence[Any], ran: Sequence[Any]
    ) -> None:
        """Called by MetaSchedule after each batch."""
        task = self.result.tasks[task_id]
        for one in ran:
            task.trials += 1
            if one.run_secs is None or one.error_msg is not None:
                task.failed += 1
            else:
                latency = sum(map(float, one.run_secs)) / len(one.run_secs)
                task.best = latency if task.best is None else min(task.best, latency)
        elapsed = time.perf_counter() - self.start
        self.result.curve.append(CurvePoint(self.result.trials, self.before + elapsed, self.result.latency))
        self.account()
        self.result.save(self.work_dir)
        self.progress.measured(self.result, task.name)

    def account(self) -> None:
        """Brings the phases' seconds up to date."""
        elapsed = time.perf_counter() - self.start
        spent = phase_seconds({str(name): float(value) for name, value in self.profiler.get().items()})
        spent["other"] = max(0.0, elapsed - sum(spent.values()))
        for phase, seconds in spent.items():
            self.result.seconds[phase] = self.seconds.get(phase, 0.0) + seconds


def phase_seconds(timers: Mapping[str, float]) -> dict[str, float]:
    """Seconds a phase, from the seconds of MetaSchedule's timers."""
    return {phase: sum(timers.get(name, 0.0) for name in names) for phase, names in _TIMERS.items()}


class _StatusFromLog(logging.Handler):
    """Says what the search does now, which MetaSchedule tells only to its log."""

    _TELLING = (
        (re.compile(r'TaskScheduler picks Task #\d+: "(?P<task>.*)"'), "searching"),
        (re.compile(r"Sending \d+ sample\(s\) to builder"), "building"),
        (re.compile(r"Sending \d+ valid sample\(s\) to runner"), "running"),
    )

    def __init__(self, progress: Progress) -> None:
        super().__init__(logging.INFO)
        self.progress = progress
        self.task = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Passes on the few messages that mark a step."""
        message = record.getMessage()
        for pattern, step in self._TELLING:
            if match := pattern.search(message):
                self.task = match.groupdict().get("task", self.task)
                self.progress.status(f"{step}: {self.task}")


class _Notes(logging.Handler):
    """Passes the cost model's warnings on to the user."""

    def __init__(self, progress: Progress) -> None:
        super().__init__(logging.WARNING)
        self.progress = progress

    def emit(self, record: logging.LogRecord) -> None:
        """Passes one on."""
        self.progress.note(record.getMessage())


def quiet_console() -> None:
    """Makes the console handler that MetaSchedule is about to add print nothing; its files get everything.

    Handlers of an earlier search are dropped: MetaSchedule would carry them over, and fails on any without a name.
    """
    logger = logging.getLogger(_LOGGER)
    logger.setLevel(logging.CRITICAL)
    for handler in list(logger.handlers):
        logger.removeHandler(handler)
        handler.close()


@contextmanager
def follow_logs(progress: Progress, work_dir: Path) -> Iterator[None]:
    """Tells ``progress`` of the searches' steps and the cost model's warnings; enter it after TVM set up its loggers.

    What TVM's C++ code prints meanwhile goes to ``logs/stderr.log``.
    """
    handlers = ((logging.getLogger(_LOGGER), _StatusFromLog(progress)), (logging.getLogger(_OURS), _Notes(progress)))
    for logger, handler in handlers:
        logger.addHandler(handler)
    sys.stderr.flush()
    stderr = os.dup(2)
    with (work_dir / "logs" / "stderr.log").open("a") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(stderr, 2)
        os.close(stderr)
        for logger, handler in handlers:
            logger.removeHandler(handler)
