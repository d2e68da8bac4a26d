"""Progress of long-running functions, as typed events.

The ``progress`` argument of a function is any callable that takes one event, so ``progress=print`` works in a notebook.

>>> print(Advanced(3, 8))
Advanced(done=3, total=8)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Stage:
    """A stage has started; it may take minutes."""

    text: str


@dataclass(frozen=True)
class Step:
    """A short step has started."""

    text: str


@dataclass(frozen=True)
class Note:
    """A message for the user."""

    text: str


@dataclass(frozen=True)
class Advanced:
    """``done`` of ``total`` items are finished, including those of an earlier, interrupted run."""

    done: int
    total: int


@dataclass(frozen=True)
class TasksFound:
    """The tasks of a workload were extracted; ``new`` of them do not occur in earlier workloads."""

    workload: str
    new: int


@dataclass(frozen=True)
class ProgramsMeasured:
    """Programs of a task were measured: ``valid`` of them successfully, ``failed`` with an error."""

    task: str
    valid: int
    failed: int


@dataclass(frozen=True)
class TaskFinished:
    """All programs of a task are measured, in this run or in an earlier one."""

    task: str


@dataclass(frozen=True)
class TrialsMeasured:
    """A batch of candidates of a search was measured.

    Attributes:
        task: Name of the batch's task; empty for trials of an earlier run.
        trials: Number of candidates measured so far.
        budget: Number of candidates to measure in total; None if only the time is limited.
        latency: Weighted sum of the tasks' best latencies, in seconds.
    """

    task: str
    trials: int
    budget: int | None
    latency: float


@dataclass(frozen=True)
class EpochFinished:
    """Training has finished epoch ``number``, counted from 1."""

    number: int
    metrics: Mapping[str, float]


Event = Stage | Step | Note | Advanced | TasksFound | ProgramsMeasured | TaskFinished | TrialsMeasured | EpochFinished

Progress = Callable[[Event], None]


def ignore(_event: Event) -> None:
    """Ignores an event; the default of every ``progress`` argument."""
