"""The result of a tuning run, as it is saved in its work directory."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import write_json
from tvm_gnn_cost.measuring.machine import describe_machine

#: Where in the work directory the result is.
FILE_NAME = "tuning.json"

#: The phases of a run, in the order of a table; the keys of ``TuneResult.seconds``.
PHASES = (
    "preparation",
    "initial population",
    "mutation",
    "prediction",
    "model update",
    "building",
    "running",
    "verification",
    "other",
)


@dataclass(frozen=True)
class Settings:
    """The arguments of a tuning run.

    Attributes:
        network: A name in the catalogue.
        trials: Programs to measure, over all tasks and all runs in this work directory.
        cost_model: ``gnn``, ``xgb``, ``random`` or a checkpoint's path.
        seed: The seed of the search.
        target: TVM's target, as JSON.
        batch: Programs measured at a time.
        population: Candidates that the evolutionary search keeps.
        scheduler: ``meta-schedule`` or ``auto-scheduler``.
    """

    network: str
    trials: int
    cost_model: str
    seed: int
    target: str
    batch: int
    population: int
    scheduler: str = "meta-schedule"


@dataclass
class TaskResult:
    """A task's latencies in seconds.

    Attributes:
        name: TVM's name of the task.
        weight: How many times the task occurs in the network.
        untuned: Mean latency of the default schedule.
        best: Least mean latency of the measured programs; None if none of them was valid.
        trials: Programs measured, failures included.
        failed: Programs that failed to build or to run.
    """

    name: str
    weight: int
    untuned: float
    best: float | None = None
    trials: int = 0
    failed: int = 0

    def add(self, latencies: Sequence[float]) -> None:
        """Counts measured programs: mean latencies in seconds, infinite where one failed."""
        valid = [latency for latency in latencies if math.isfinite(latency)]
        self.trials += len(latencies)
        self.failed += len(latencies) - len(valid)
        self.best = min([*valid, *([] if self.best is None else [self.best])], default=None)

    @property
    def improved(self) -> bool:
        """Whether a measured program beats the default schedule."""
        return self.best is not None and self.best < self.untuned

    @property
    def latency(self) -> float:
        """Seconds with the schedule that the tuned network uses: the better one."""
        return self.best if self.best is not None and self.best < self.untuned else self.untuned


@dataclass(frozen=True)
class CurvePoint:
    """The state of the search after a batch: programs measured, seconds searched, weighted sum of latencies in s."""

    trials: int
    seconds: float
    latency: float


@dataclass(frozen=True)
class EndToEnd:
    """The network end to end: seconds of each repeat, and the largest difference from the reference output.

    The difference is relative to the reference's largest output. The reference is PyTorch with MetaSchedule, and the
    untuned network itself with ``auto_scheduler``.
    """

    untuned: list[float]
    tuned: list[float]
    untuned_difference: float
    tuned_difference: float


@dataclass
class TuneResult:
    """A tuning run; ``searched`` counts the trials that the search was allowed, ``trials`` the programs measured."""

    settings: Settings
    machine: dict[str, Any]
    versions: dict[str, str]
    date: str
    tasks: list[TaskResult] = field(default_factory=list)
    curve: list[CurvePoint] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    searched: int = 0
    end_to_end: EndToEnd | None = None

    @property
    def trials(self) -> int:
        """Programs measured, failures included."""
        return sum(task.trials for task in self.tasks)

    @property
    def latency(self) -> float:
        """The weighted sum of the tasks' latencies, in seconds."""
        return sum(task.weight * task.latency for task in self.tasks)

    @property
    def untuned_latency(self) -> float:
        """The weighted sum of the tasks' untuned latencies, in seconds."""
        return sum(task.weight * task.untuned for task in self.tasks)

    @property
    def finished(self) -> bool:
        """Whether the budget is used up and the network was compared end to end."""
        return self.searched >= self.settings.trials and self.end_to_end is not None

    def spend(self, phase: str, seconds: float) -> None:
        """Adds seconds to a phase."""
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds

    def recount_trials(self, latencies: Sequence[Sequence[float]]) -> None:
        """Counts each task's programs anew: the records are right after a kill, ``tuning.json`` may lag behind."""
        for task, own in zip(self.tasks, latencies, strict=True):
            task.trials, task.failed, task.best = 0, 0, None
            task.add(own)

    def as_json(self) -> dict[str, Any]:
        """The result as plain JSON."""
        return asdict(self)

    def save(self, work_dir: Path) -> None:
        """Writes ``work_dir/tuning.json`` whole or not at all."""
        write_json(work_dir / FILE_NAME, self.as_json())


def load_result(work_dir: Path) -> TuneResult:
    """Reads what :meth:`TuneResult.save` wrote.

    Raises:
        FileNotFoundError: there is none.
        InputError: the file is damaged.
    """
    path = work_dir / FILE_NAME
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist: no network was tuned in {work_dir} (tvm-gnn-cost tune)")
    try:
        data = json.loads(path.read_text())
        end_to_end = data.pop("end_to_end")
        return TuneResult(
            settings=Settings(**data.pop("settings")),
            tasks=[TaskResult(**task) for task in data.pop("tasks")],
            curve=[CurvePoint(**point) for point in data.pop("curve")],
            end_to_end=EndToEnd(**end_to_end) if end_to_end else None,
            **data,
        )
    except (KeyError, TypeError, AttributeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise InputError(
            f"{path} is not a tuning result ({error!r}); remove the file to tune again from its database"
        ) from error


def resume(settings: Settings, work_dir: Path, records: str, packages: Sequence[str]) -> TuneResult:
    """The result so far in a work directory, or an empty one.

    Args:
        settings: What is asked for now.
        work_dir: The directory.
        records: The file in it that holds measure records.
        packages: Whose versions belong to the result.

    Raises:
        InputError: the directory belongs to other settings, or holds records without a result.
    """
    if not (work_dir / FILE_NAME).exists():
        if (work_dir / records).exists():
            raise InputError(f"{work_dir} holds {records} but no {FILE_NAME}; choose another directory")
        versions = {name: version(name) for name in packages}
        return TuneResult(settings, describe_machine(), versions, datetime.date.today().isoformat())
    result = load_result(work_dir)
    for name in ("scheduler", "network", "cost_model", "seed", "target", "batch", "population"):
        there, asked = getattr(result.settings, name), getattr(settings, name)
        if there != asked:
            raise InputError(
                f"{work_dir} was tuned with {name.replace('_', ' ')} {there}, not {asked}; "
                "choose another work directory or remove that one"
            )
    if settings.trials > result.searched:
        result.settings = settings
    return result
