from __future__ import annotations

from pathlib import Path

import pytest

from tests import synthetic
from tvm_gnn_cost.datasets.store import GraphStore
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tuning.evaluate import evaluate, model_by_name


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    GraphStore(folder).append(synthetic.programs(6, 10))
    return folder


def test_every_model_is_scored_over_the_networks_and_task_by_task(store: Path, checkpoint: str) -> None:
    done = evaluate(store, [checkpoint, "constant", "random"], networks=["net1", "net0"])
    assert done.networks == ("net1", "net0")
    assert list(done.models) == [checkpoint, "constant", "random"]
    assert done.models["constant"].metrics["pairwise_accuracy"] == 0.5
    assert len(done.models[checkpoint].tasks) == 6
    assert done.trained_on == {checkpoint: [], "constant": [], "random": []}
    assert done.problems == ()
    one = evaluate(store, ["constant"], networks=["net1"])
    assert len(one.models["constant"].tasks) == 3


def test_a_models_detail_and_networks_come_from_its_card(checkpoint: str) -> None:
    assert model_by_name(checkpoint).detail == "statements"
    assert model_by_name("random").networks == ()
    with pytest.raises(InputError, match="there is no such checkpoint"):
        model_by_name("nothing.safetensors")


def test_mistakes(store: Path) -> None:
    with pytest.raises(InputError, match="network 'net7' does not occur in the data; it has: net0, net1"):
        evaluate(store, ["random"], networks=["net7"])
    with pytest.raises(InputError, match="hardware is for a folder in TenSet's layout"):
        evaluate(store, ["random"], hardware="cpu")
