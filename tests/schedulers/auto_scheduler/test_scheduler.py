"""What only ``auto_scheduler``'s side of the protocol does; ``tests/schedulers/test_scheduler.py`` has the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
import tvm
from tvm import relay

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.schedulers.auto_scheduler.networks import NETWORKS, TRAINING
from tvm_gnn_cost.schedulers.auto_scheduler.operators import KINDS
from tvm_gnn_cost.schedulers.auto_scheduler.scheduler import AutoScheduler
from tvm_gnn_cost.schedulers.scheduler import CollectPlan, Network


@pytest.fixture(scope="module")
def scheduler() -> AutoScheduler:
    return AutoScheduler()


def test_xgboost_ranks_after_a_batch_of_every_task(scheduler: AutoScheduler) -> None:
    assert scheduler.cost_model("xgb", 0, tasks=4, batch_size=8).num_warmup_sample == 32


def test_the_version_of_tvm_is_in_no_package(scheduler: AutoScheduler) -> None:
    assert scheduler.versions()["tvm"] == tvm.__version__


def test_the_groups_of_workloads(scheduler: AutoScheduler) -> None:
    held_out = scheduler.expand(["held-out"])
    assert held_out == ("resnet-18", "mobilenet", "inception-v3")
    assert set(held_out) | set(TRAINING) == set(NETWORKS)
    assert len(scheduler.expand(["training"])) == len(TRAINING) + 4 * len(KINDS)


@pytest.mark.parametrize("hardware", ["../../elsewhere", "my cpu", "a/b", ".", "..", ""])
def test_a_name_of_the_hardware_that_is_no_folders(scheduler: AutoScheduler, hardware: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"hardware '.*' cannot name a folder"):
        scheduler.collection(tmp_path / "data", CollectPlan(("softmax/0",)), hardware, scheduler.target(), {})
    if hardware:
        with pytest.raises(InputError, match=r"hardware '.*' cannot name a folder"):
            scheduler.target(hardware)
    assert not list(tmp_path.iterdir())


def test_the_target_bears_the_hardwares_name(scheduler: AutoScheduler) -> None:
    assert "-model=e5" in str(scheduler.target("e5"))


def test_an_operator_cannot_be_tuned(scheduler: AutoScheduler) -> None:
    with pytest.raises(InputError, match="unknown network 'dense/0' for auto_scheduler; one of: resnet-18"):
        scheduler.network("dense/0")


def test_operations_that_tvm_cannot_count_are_none(scheduler: AutoScheduler) -> None:
    pooling = relay.nn.global_avg_pool2d(relay.var("data", shape=(1, 7, 7, 64)), layout="NHWC")
    mod = relay.transform.InferType()(tvm.IRModule.from_expr(pooling))
    (task,) = scheduler.tasks(Network("pooling", mod, {}, {}, None), scheduler.target())
    assert task.workload.compute_dag.flop_ct < 0
    assert scheduler.flops(task) == 0
