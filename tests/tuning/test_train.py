from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests import synthetic
from tvm_gnn_cost.datasets.store import GraphStore
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.progress import EpochFinished, Event
from tvm_gnn_cost.scoring.checkpoint import Checkpoint
from tvm_gnn_cost.scoring.cost_model import CostModel
from tvm_gnn_cost.scoring.scorer import Scorer
from tvm_gnn_cost.tuning.train import train


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("store")
    GraphStore(folder).append(synthetic.programs(6, 10))
    return folder


def test_the_same_seed_gives_the_same_model(store: Path, tmp_path: Path) -> None:
    events: list[Event] = []
    done = train(store, tmp_path / "a", held_out=["net1"], epochs=2, progress=events.append)
    train(store, str(tmp_path / "b"), held_out=["net1"], epochs=2)
    train(store, tmp_path / "c", held_out=["net1"], epochs=2, seed=1)
    scores = [Scorer(Checkpoint.load(tmp_path / name)).score(synthetic.graphs(5, 9)) for name in "abc"]
    np.testing.assert_array_equal(scores[0], scores[1])
    assert (scores[0] != scores[2]).any()
    assert isinstance(done, CostModel)
    np.testing.assert_array_equal(done.scorer.score(synthetic.graphs(5, 9)), scores[0])
    assert set(done.history) == {"train_loss", "validation_loss", "validation_error"}
    assert len(done.history["validation_error"]) == 2
    assert done.card["training"]["epochs"] == 2
    assert [event.number for event in events if isinstance(event, EpochFinished)] == [1, 2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c"]


def test_a_store_larger_than_memory_gives_the_same_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = synthetic.programs(6, 40)
    large = GraphStore(tmp_path / "store")
    for rows in np.array_split(np.random.default_rng(0).permutation(len(programs)), 3):
        large.append(programs.select(rows))
    models = []
    for share in (1 / 8, 0):
        monkeypatch.setattr("tvm_gnn_cost.tuning.train._MEMORY_SHARE", share)
        path = tmp_path / f"{share}.safetensors"
        train(large.folder, path, held_out=["net1"], epochs=2)
        models.append(path.read_bytes())
    assert models[0] == models[1]


def test_a_model_is_trained_without_a_file_and_from_an_object(store: Path) -> None:
    first = train(store, held_out=["net1"], epochs=1)
    assert isinstance(first, CostModel)
    second = train(store, held_out=["net1"], epochs=1, learning_rate=1e-12, start=first)
    assert isinstance(second, CostModel)
    assert second.checkpoint.config == first.checkpoint.config
    for name, tensor in first.checkpoint.state.items():
        np.testing.assert_allclose(second.checkpoint.state[name].numpy(), tensor.numpy(), atol=1e-6)


def test_mistakes(store: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="unknown model 'gcn'; one of: gnn, tpgnn, xgb"):
        train(store, tmp_path / "model", model="gcn")
    with pytest.raises(InputError, match="graphs of detail 'tree'"):
        train(store, tmp_path / "model", model="tpgnn", held_out=["net1"])
    with pytest.raises(InputError, match="none of the default test networks"):
        train(store, tmp_path / "model")
    assert not (tmp_path / "model").exists()


@pytest.mark.needs("tvm")
def test_tvms_model_needs_its_features(store: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holds no per-store features"):
        train(store, tmp_path / "trees", model="xgb", held_out=["net1"])
