"""What only MetaSchedule's side of the protocol does; ``tests/schedulers/test_scheduler.py`` has the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.schedulers.conftest import QUICK
from tests.schedulers.meta_schedule.convolutions import Residual
from tvm_gnn_cost.datasets.split import TEST_NETWORKS
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.networks.operators import KINDS
from tvm_gnn_cost.schedulers.build_pool import Built
from tvm_gnn_cost.schedulers.meta_schedule import scheduler as module
from tvm_gnn_cost.schedulers.meta_schedule.sampling import untuned
from tvm_gnn_cost.schedulers.meta_schedule.scheduler import MetaSchedule
from tvm_gnn_cost.schedulers.scheduler import Outcome, Task


@pytest.fixture(scope="module")
def scheduler() -> MetaSchedule:
    return MetaSchedule()


def test_hardware_is_for_tensets_layout(scheduler: MetaSchedule, tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"hardware is for a folder in TenSet's layout, but .* is not such a folder; leave it out"
    ):
        scheduler.measured(tmp_path, hardware="e5")
    assert str(scheduler.target("e5")) == str(scheduler.target())


def test_the_groups_of_workloads(scheduler: MetaSchedule) -> None:
    assert scheduler.expand(["held-out"]) == TEST_NETWORKS["meta-schedule"]
    assert scheduler.expand(["training"])[:2] == ("mobilenet-v1", "resnet-50")
    assert len(scheduler.expand(["training"])) == 15 + 4 * len(KINDS)


def test_the_worker_processes_are_shared(scheduler: MetaSchedule) -> None:
    assert scheduler.build_pool is scheduler.build_pool


def test_a_chosen_alternative_replaces_its_task(scheduler: MetaSchedule, target: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    network = scheduler.network(Residual(32), (torch.randn(1, 3, 56, 56),))
    assert network.expected is not None
    tasks = scheduler.tasks(network, target)
    others = [task for task in tasks if task.instead_of]
    assert len(others) == 2
    assert {task.instead_of for task in others} < {task.key for task in tasks}
    chosen = [(task, scheduler.sample(task, target, 1, seed=0)[0]) for task in others]
    direct = scheduler.compile(network, target).run(network.inputs)[0]
    replaced = scheduler.compile(network, target, tmp_path, chosen=chosen).run(network.inputs)[0]
    np.testing.assert_allclose(replaced, network.expected[0], atol=1e-4)
    # Winograd's rounding is another one.
    assert (replaced != direct).any()


def test_every_candidate_gets_the_outcome_of_its_own(
    scheduler: MetaSchedule, tasks: list[Task], target: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def build(programs: list[Any]) -> list[Built]:
        """Builds numbers."""
        return [Built(str(number)) for number in range(len(programs))]

    def run(candidates: list[Any], built: list[Built], *_: object) -> list[Outcome]:
        """Runs a number for so many seconds."""
        assert len(candidates) == len(built)
        return [Outcome((float(str(one.artifact)),)) for one in built]

    monkeypatch.setattr(scheduler.build_pool, "build", build)
    monkeypatch.setattr(module, "run_built", run)
    groups = [(task, [untuned(task)] * (1 + number)) for number, task in enumerate(tasks)]
    found = [(task, [one.latency for one in own]) for task, own in scheduler.measure(groups, target, QUICK)]
    assert found == list(zip(tasks, ([0.0], [1.0, 2.0], [3.0, 4.0, 5.0], [6.0, 7.0, 8.0, 9.0]), strict=True))


def test_operations_of_a_convolution_are_counted_without_its_padding(scheduler: MetaSchedule) -> None:
    network = scheduler.network(nn.Conv2d(64, 64, 3, padding=1), (torch.zeros(1, 64, 56, 56),))
    tasks = scheduler.tasks(network, scheduler.target())
    counted = sum(task.weight * scheduler.flops(task) for task in tasks if not task.instead_of)
    assert counted == pytest.approx(2 * 56 * 56 * 64 * 64 * 9, rel=0.02)
