"""Compares programs with their task's unscheduled program, in the worker processes that build them."""

from __future__ import annotations

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

import numpy.typing as npt

from tvm_gnn_cost.measuring.arguments import KINDS, Argument, Kind, draw
from tvm_gnn_cost.measuring.verification import Reference
from tvm_gnn_cost.schedulers.build_pool import BuildPool


class SomeCheck(Protocol):
    """What a program of a task is compared with."""

    @property
    def problem(self) -> str:
        """Why there is nothing to compare with; empty if there is."""


AnyTask = TypeVar("AnyTask")
AnyCheck = TypeVar("AnyCheck", bound=SomeCheck)


class Verifier(ABC, Generic[AnyTask, AnyCheck]):
    """The checks of tasks, each computed when it is first asked for.

    Args:
        pool: The worker processes.
    """

    def __init__(self, pool: BuildPool[Any]) -> None:
        self.pool = pool
        self.checks: dict[str, AnyCheck] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="tvm-gnn-cost-references-")

    @abstractmethod
    def key(self, task: AnyTask) -> str:
        """Identifies a task."""

    @abstractmethod
    def run_references(self, tasks: Sequence[AnyTask], paths: Sequence[str], kinds: tuple[Kind, ...]) -> list[AnyCheck]:
        """Runs the unscheduled program of each task and returns its check.

        Args:
            tasks: The tasks.
            paths: Where the outputs of each program go.
            kinds: How to draw the arguments.
        """

    def checks_of(self, tasks: Sequence[AnyTask]) -> list[AnyCheck]:
        """The check of each task."""
        missing = {self.key(task): task for task in tasks if self.key(task) not in self.checks}
        # With integers of both signs, a program that divides by one may end its process.
        for kinds in (KINDS, KINDS[1:]):
            paths = [f"{tempfile.mkdtemp(dir=self._folder.name)}/reference.npz" for _ in missing]
            checks = self.run_references(list(missing.values()), paths, kinds)
            self.checks |= zip(missing, checks, strict=True)
            missing = {key: task for key, task in missing.items() if self.checks[key].problem}
        return [self.checks[self.key(task)] for task in tasks]


@lru_cache(maxsize=2)
def reference_at(path: str) -> Reference:
    """A reference that was saved, read once in each worker."""
    return Reference.load(Path(path))


@lru_cache(maxsize=1)
def drawn(arguments: tuple[Argument, ...], kind: Kind) -> list[npt.NDArray[Any]]:
    """Values of the arguments, drawn once for a task in each worker."""
    return draw(arguments, kind)
