"""A scheduler whose candidates are texts; those that begin with "wrong" compute something else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.errors import WorkError
from tvm_gnn_cost.progress import Event, Note
from tvm_gnn_cost.schedulers.scheduler import Network, Task
from tvm_gnn_cost.tuning.choosing import Chooser
from tvm_gnn_cost.tuning.result import Settings, TaskResult, TuneResult


@dataclass
class Library:
    """A compiled network: the candidate of each task that has one."""

    schedules: dict[str, str]
    factor: float

    def run(self, inputs: dict[str, npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], ...]:
        """Twice the input, with another sign if a schedule is wrong."""
        wrong = any("wrong" in one for one in self.schedules.values())
        return tuple(one * np.float32(-2 if wrong else self.factor) for one in inputs.values())


@dataclass
class Schedules:
    """The scheduler, and the screening that picks its candidates.

    Attributes:
        ranked: The candidates of each task, the best first.
        recorded: The measured ones, with their seconds.
        blind: Whether what is wrong passes for right, alone.
        factor: What a right library multiplies with; the framework with two.
    """

    ranked: dict[str, list[str]] = field(default_factory=dict)
    recorded: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    blind: bool = False
    factor: float = 2.0
    verified: list[str] = field(default_factory=list)
    compiled: int = 0
    target: str = "here"

    @property
    def scheduler(self) -> Schedules:
        return self

    def rank(self, task: Task) -> list[str]:
        return self.ranked.get(task.key, [])

    def faults(self, candidates: Sequence[tuple[Task, str]], _target: object) -> list[str]:
        self.verified += [one for _, one in candidates]
        return [
            "computes something else" if one.startswith("wrong") and not self.blind else "" for _, one in candidates
        ]

    def describe(self, task: Task, candidate: str) -> str:
        return f"{task.key}: {candidate}"

    def dtypes(self, _task: Task) -> list[str]:
        return ["float32"]

    def best(self, tasks: Sequence[Task], _work_dir: Path) -> list[str | None]:
        return [min(self.recorded.get(task.key, []), default=(0, None))[1] for task in tasks]

    def strike(self, task: Task, candidate: str, _work_dir: Path) -> None:
        self.recorded[task.key] = [(math.inf if one == candidate else s, one) for s, one in self.recorded[task.key]]

    def latencies(self, tasks: Sequence[Task], _work_dir: Path) -> list[list[float]]:
        return [[seconds for seconds, _ in self.recorded.get(task.key, [])] for task in tasks]

    def compile(
        self,
        network: Network,
        _target: object,
        _work_dir: Path | None = None,
        tuned: Sequence[Task] = (),
        chosen: Sequence[tuple[Task, str]] = (),
    ) -> Library:
        self.compiled += 1
        schedules = {task.key: str(one) for task, one in zip(tuned, self.best(tuned, Path()), strict=True)}
        schedules |= {task.key: one for task, one in chosen}
        if "no code" in schedules.values():
            raise WorkError(f"TVM cannot compile {network.name}")
        return Library(schedules, self.factor)


def tasks_of(schedules: Schedules) -> list[Task]:
    return [Task(key, f"task {key}", 1, None) for key in sorted({*schedules.ranked, *schedules.recorded})]


def chooser_of(schedules: Schedules, folder: Path, untuned: float | None = None) -> tuple[Chooser, list[str]]:
    """A chooser, and the texts of its notes."""
    tasks, notes = tasks_of(schedules), list[str]()
    result = TuneResult(
        Settings("net", 0, None, "gnn", 0, "", 2, 16, "meta-schedule"),
        *({}, {}, ""),
        tasks=[TaskResult(task.name, 1, untuned) for task in tasks],
    )
    result.recount_trials(schedules.latencies(tasks, folder))

    def progress(event: Event) -> None:
        if isinstance(event, Note):
            notes.append(event.text)

    return Chooser(schedules, tasks, result, folder, progress), notes  # type: ignore[arg-type]
