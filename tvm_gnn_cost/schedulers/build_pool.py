"""Builds programs on all cores, in worker processes that are reused for many batches."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Thread
from typing import Any, Generic, TypeVar

from tvm_gnn_cost.datasets.records import Failure
from tvm_gnn_cost.installed import PopenPoolExecutor, StatusKind
from tvm_gnn_cost.measuring.machine import usable_cores, use_all_cores

T = TypeVar("T")


@dataclass(frozen=True)
class Built:
    """The result of building one program.

    Attributes:
        artifact: Path of the library, in a temporary folder without other files; None if the build failed.
        failure: Why there is no library; None if there is one.
        message: TVM's error message; empty if there was none.
        seconds: Build time; 0 if the record does not need it.
    """

    artifact: str | None
    failure: Failure | None = None
    message: str = ""
    seconds: float = 0.0


class BuildPool(Generic[T]):
    """Builds on all cores in worker processes that are reused for many batches.

    TVM's builders start new workers for every batch, because workers leak memory, and each imports TVM. On two cores
    that takes 3 to 10 s per batch, longer than building 16 programs. Here a worker is replaced after 200 programs.

    Args:
        build: Builds a program; a module-level function, whose module the workers import.
        timeout_s: Time limit for building a program, in seconds.
    """

    def __init__(self, build: Callable[[T], Built], timeout_s: float = 30.0) -> None:
        self._build, self.timeout_s = build, timeout_s
        self.pool = PopenPoolExecutor(
            max_workers=usable_cores(),
            initializer=use_all_cores,
            timeout=timeout_s,
            maximum_process_uses=200,
            stderr=subprocess.DEVNULL,
        )

    def start(self) -> None:
        """Starts the processes in the background, which takes seconds: each imports the module of ``build``."""
        # Whoever unpickles a function imports its module.
        Thread(target=self.run, args=(_receive, [self._build] * usable_cores()), daemon=True).start()

    def build(self, programs: Sequence[T]) -> list[Built]:
        """Builds programs; ``failure`` of the result says why a build failed."""
        return self.run(self._build, programs)

    def run(self, call: Callable[[Any], Built], items: Sequence[Any]) -> list[Built]:
        """Calls another module-level function on items in the same processes.

        Args:
            call: Works on an item.
            items: The items.
        """
        results = []
        for done in self.pool.map_with_error_catching(call, list(items)):
            if done.status == StatusKind.COMPLETE:
                results.append(done.value)
            elif done.status == StatusKind.TIMEOUT:
                message = f"not built within {self.timeout_s} seconds"
                results.append(Built(None, Failure.BUILD_TIMEOUT, message, self.timeout_s))
            else:
                results.append(Built(None, Failure.BUILD_ERROR, str(done.value)))
        return results


def _receive(_build: Callable[[Any], Built]) -> Built:
    return Built(None)
