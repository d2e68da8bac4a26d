from __future__ import annotations

from pathlib import Path

import pytest

from tests import synthetic
from tvm_gnn_cost.datasets.store import GraphStore
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.scoring.cost_model import CostModel
from tvm_gnn_cost.tuning.evaluate import evaluate
from tvm_gnn_cost.tuning.train import train


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


def test_a_model_may_be_a_path_or_an_object_and_have_a_name(store: Path, checkpoint: str) -> None:
    by_path = evaluate(store, checkpoint, networks=["net1"])
    model = CostModel.load(checkpoint)
    named = evaluate(store, {"mine": model, "chance": "random"}, networks=["net1"])
    assert named.models["mine"] == by_path.models[checkpoint]
    assert list(named.models) == ["mine", "chance"]
    assert list(evaluate(store, [Path(checkpoint), "constant"], networks=["net1"]).models) == [checkpoint, "constant"]


@pytest.mark.needs("tvm")
def test_tvms_xgboost_model_is_a_path_an_object_or_tvms_own(tmp_path: Path) -> None:
    from tvm_gnn_cost import XGBBaseline

    graph_store = GraphStore(tmp_path / "store")
    graph_store.append(synthetic.with_features(synthetic.programs(6, 10)))
    trained = train(graph_store.folder, tmp_path / "xgb.json", model="xgb", held_out=["net1"])
    assert isinstance(trained, XGBBaseline)
    models = {"path": tmp_path / "xgb.json", "object": trained, "loaded": XGBBaseline.load(tmp_path / "xgb.json")}
    done = evaluate(graph_store.folder, models | {"tvm": trained.model}, networks=["net1"])
    assert len({str(evaluation) for evaluation in done.models.values()}) == 1


def test_mistakes(store: Path) -> None:
    with pytest.raises(InputError, match="network 'net7' does not occur in the data; it has: net0, net1"):
        evaluate(store, ["random"], networks=["net7"])
    with pytest.raises(InputError, match="hardware is for a folder in TenSet's layout"):
        evaluate(store, ["random"], hardware="cpu")
    with pytest.raises(InputError, match="there is no such checkpoint"):
        evaluate(store, ["nothing.safetensors"])
    with pytest.raises(InputError, match="the model 'xgb' must be trained first"):
        evaluate(store, "xgb")
    with pytest.raises(InputError, match="an object of type object cannot rank stored programs; give a CostModel"):
        evaluate(store, object())
    with pytest.raises(InputError, match="two have the same name"):
        evaluate(store, ["random", "random"])
