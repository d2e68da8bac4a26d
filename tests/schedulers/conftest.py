"""What the tests of both schedulers share: a small network, its tasks, measured programs and a search.

The fixtures come from the scheduler of the installed TVM; each is made once, because TVM's worker processes take
seconds to start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tvm_gnn_cost.progress import Event
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.schedulers.scheduler import MeasureSettings, Network, Outcome, SearchSettings, Task

#: A perceptron of four tasks for each scheduler.
NETWORKS = {"meta-schedule": "perceptron", "auto-scheduler": "mlp"}

QUICK = MeasureSettings(repeats=2)


@dataclass
class Listener:
    """Remembers what a search reports, and interrupts or ends it after a number of batches or with too little gain."""

    stop_after: float = float("inf")
    budget: float = float("inf")
    least: float = 0.0
    events: list[Event] = field(default_factory=list)
    batches: list[tuple[int, list[float]]] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    gains: list[float] = field(default_factory=list)

    def progress(self, event: Event) -> None:
        self.events.append(event)

    def interrupted(self) -> bool:
        return len(self.batches) >= self.stop_after

    def finished(self) -> bool:
        return len(self.batches) >= self.budget

    def worthwhile(self, gain: float) -> bool:
        self.gains.append(gain)
        return gain >= self.least

    def measured(self, task: int, latencies: Sequence[float]) -> None:
        self.batches.append((task, list(latencies)))

    def spent(self, seconds: Mapping[str, float]) -> None:
        self.seconds = dict(seconds)


def search_settings(tasks: int, measured: int = 0, batch: int = 2) -> SearchSettings:
    """Of a short search of tasks that take a second each."""
    return SearchSettings(measured, batch, 16, 0, latencies=(1.0,) * tasks, floors=(0.0,) * tasks)


@pytest.fixture(scope="session")
def target() -> Any:
    return scheduler().target()


@pytest.fixture(scope="session")
def network() -> Network:
    return scheduler().network(NETWORKS[scheduler().name])


@pytest.fixture(scope="session")
def tasks(network: Network, target: Any) -> list[Task]:
    return scheduler().tasks(network, target)


@pytest.fixture(scope="session")
def task(tasks: list[Task]) -> Task:
    """A matrix product with bias and ReLU."""
    return next(task for task in tasks if "relu" in task.name or "maximum" in task.name)


@pytest.fixture(scope="session")
def candidates(task: Task, target: Any) -> list[Any]:
    return scheduler().sample(task, target, 6, seed=0)


@pytest.fixture(scope="session")
def outcomes(task: Task, target: Any, candidates: list[Any]) -> list[Outcome]:
    """Of the candidates, of which some differ: a model learns nothing from latencies within 3% of each other."""
    for _ in range(5):
        ((_, measured),) = scheduler().measure([(task, candidates)], target, QUICK)
        latencies = [outcome.latency for outcome in measured]
        if max(latencies) > 1.05 * min(latencies):
            break
    return measured


@pytest.fixture(scope="session")
def searched(tasks: list[Task], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Listener]:
    """The work directory of a search that measured two programs of each of the first two tasks."""
    work_dir, listener = tmp_path_factory.mktemp("search"), Listener(budget=2)
    model = scheduler().cost_model("random", 0, 2, 2)
    # The first batch makes the first task so fast that the second one has more to gain.
    scheduler().search(tasks[:2], model, work_dir, search_settings(2), listener)
    return work_dir, listener
