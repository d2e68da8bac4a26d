from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from tests import synthetic
from tests.models.test_tvm_baselines import SumOfStores
from tvm_gnn_cost.datasets.programs import MeasuredPrograms
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.embedding import train_vectors
from tvm_gnn_cost.models.topk_gnn import PRESETS
from tvm_gnn_cost.progress import EpochFinished, Event, Stage
from tvm_gnn_cost.training import pipeline
from tvm_gnn_cost.training.fit import FitSettings, new_checkpoint
from tvm_gnn_cost.training.pipeline import VALIDATION_FRACTION, split_programs, train_gnn, train_xgb

#: Without the values of GPU programs, which the synthetic programs have not.
SMALL = replace(PRESETS["gnn"], groups=("constant", "dtype", "loop", "access", "work"), hidden=16, layers=1, head=(16,))
SETTINGS = FitSettings(epochs=2, trees=5, tasks_per_batch=4)


@pytest.fixture(autouse=True)
def _few_walks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "train_vectors", partial(train_vectors, walks=300, epochs=1))


@pytest.fixture(scope="module")
def programs() -> MeasuredPrograms:
    return synthetic.programs(20, 6, seed=1)


def test_the_held_out_networks_only_test(programs: MeasuredPrograms) -> None:
    parts = split_programs(programs, ["net1"], seed=0)
    networks = [programs.select(part).networks for part in (parts.train, parts.validation, parts.test)]
    assert networks == [{"net0"}, {"net0"}, {"net1"}]
    tasks = set(programs.task[parts.validation].tolist())
    assert len(tasks) == round(10 * VALIDATION_FRACTION) == 1
    assert split_programs(programs, ["net1"], seed=0).validation.tolist() == parts.validation.tolist()
    with pytest.raises(InputError, match="held-out network 'vgg' does not occur"):
        split_programs(programs, ["vgg"], seed=0)


def test_a_model_is_trained_and_its_card_says_on_what(programs: MeasuredPrograms, tmp_path: Path) -> None:
    parts = split_programs(programs, ["net1"], seed=0)
    folder = tmp_path / "unfinished"
    told: list[Event] = []
    trained = train_gnn(programs, parts, SMALL, SETTINGS, folder, None, told.append)
    assert [event.number for event in told if isinstance(event, EpochFinished)] == [1, 2]
    assert told[-1] == Stage("growing trees")
    assert trained.card["networks"] == ["net0"]
    assert trained.card["targets"] == ["{}"]
    assert trained.card["training"]["train_programs"] == len(parts.train)
    assert trained.checkpoint.config == SMALL
    # Node type vectors come from the training programs alone.
    assert set(trained.checkpoint.vectors.words) - {"</s>"} == set(synthetic.TYPES)
    assert np.isfinite(trained.scorer.score(programs.graphs)).all()
    # What a run that is killed before it saves the result goes on with.
    assert (folder / "last.ckpt").is_file()


def test_the_seed_decides(programs: MeasuredPrograms, tmp_path: Path) -> None:
    parts = split_programs(programs, ["net1"], seed=0)
    scores = [
        train_gnn(programs, parts, SMALL, replace(SETTINGS, seed=seed), tmp_path / "a").scorer.score(programs.graphs)
        for seed in (1, 1, 2)
    ]
    np.testing.assert_array_equal(scores[0], scores[1])
    assert not np.array_equal(scores[0], scores[2])


def test_training_goes_on_from_a_checkpoint_with_its_architecture(programs: MeasuredPrograms, tmp_path: Path) -> None:
    parts = split_programs(programs, ["net1"], seed=0)
    start = new_checkpoint(SMALL, synthetic.vectors(), programs, seed=5)
    start.card["note"] = "kept"
    settings = replace(SETTINGS, learning_rate=1e-9)
    trained = train_gnn(programs, parts, PRESETS["tpgnn"], settings, tmp_path / "a", start)
    assert trained.checkpoint.config == SMALL
    assert trained.checkpoint.vectors is start.vectors
    assert trained.card["note"] == "kept"
    for name, tensor in start.state.items():
        np.testing.assert_allclose(trained.checkpoint.state[name].numpy(), tensor.numpy(), atol=1e-6)


def test_graphs_of_another_detail_are_refused(programs: MeasuredPrograms, tmp_path: Path) -> None:
    parts = split_programs(programs, ["net1"], seed=0)
    with pytest.raises(InputError, match="the model reads graphs of detail 'tree'"):
        train_gnn(programs, parts, replace(SMALL, detail="tree"), SETTINGS, tmp_path / "a")


def test_xgboost_trains_on_validation_tasks_too(programs: MeasuredPrograms) -> None:
    measured = synthetic.with_features(programs)
    parts = split_programs(measured, ["net1"], seed=0)
    trees = SumOfStores()
    assert train_xgb(trees, measured, parts) is trees
    rows = np.concatenate([parts.train, parts.validation])
    assert measured.per_store_features is not None
    assert len(trees.seen[0]) == len(rows)
    for found, row in zip(trees.seen[0], rows.tolist(), strict=True):
        np.testing.assert_array_equal(found, measured.per_store_features[row])
    with pytest.raises(InputError, match="no per-store features"):
        train_xgb(SumOfStores(), programs, parts)
