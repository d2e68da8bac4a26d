from __future__ import annotations

import random
import tempfile
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import torch

from tests import synthetic
from tvm_gnn_cost.datasets.programs import PER_STORE_COLUMNS, MeasuredPrograms
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.models.tvm_baselines import OfflineMLP
from tvm_gnn_cost.schedulers.mlp_baseline import mlp_baseline, mlp_search_model

pytestmark = pytest.mark.needs("tvm")


@pytest.fixture(scope="module")
def programs() -> MeasuredPrograms:
    """Programs of 1 to 3 stores, whose first feature says how fast they are; one failed and one has no features."""
    return synthetic.with_telling_features(synthetic.programs(10, 24, failed=1), scale=0.1)


@pytest.fixture(scope="module")
def mlp(programs: MeasuredPrograms) -> OfflineMLP:
    made = mlp_baseline(3)
    made.trainer.num_epoch_full = 20
    made.fit(programs)
    return made


def test_it_learns_to_rank(mlp: OfflineMLP, programs: MeasuredPrograms) -> None:
    scores = mlp.predict(programs)
    assert scores[5] == scores.min()
    known = np.arange(len(programs)) != 5
    assert np.corrcoef(scores[known], programs.throughput()[known])[0, 1] > 0.3


def test_a_single_program_and_a_batch_with_one_left_are_scored(
    mlp: OfflineMLP, programs: MeasuredPrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = programs.select(np.array([0]))
    assert mlp.predict(one).shape == (1,)
    monkeypatch.setattr(mlp.trainer, "batch_size", 4)
    assert len(programs.select(np.arange(5)).tasks) == 1
    assert np.isfinite(mlp.predict(programs.select(np.arange(5)))).all()


def test_a_seed_gives_the_same_model_and_shifts_no_other_random_numbers(
    mlp: OfflineMLP, programs: MeasuredPrograms
) -> None:
    random.seed(5)
    torch.manual_seed(5)
    expected = (random.Random(5).random(), torch.rand(1, generator=torch.Generator().manual_seed(5)))
    again = mlp_baseline(3)
    again.trainer.num_epoch_full = 20
    again.fit(programs)
    assert (random.random(), torch.rand(1)) == expected
    np.testing.assert_allclose(again.predict(programs), mlp.predict(programs))
    other = mlp_baseline(4)
    assert not np.allclose(other.predict(programs), mlp_baseline(3).predict(programs))


def test_a_training_leaves_no_file(programs: MeasuredPrograms, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    made = mlp_baseline(0)
    made.trainer.num_epoch_full = 10
    made.fit(programs)
    assert not list(tmp_path.iterdir())


def test_programs_without_features_are_refused() -> None:
    with pytest.raises(InputError, match="no per-store features, which TVM's models read"):
        mlp_baseline(0).fit(synthetic.programs(2, 6))


def test_it_has_tvms_settings() -> None:
    from tvm_gnn_cost.installed import ms

    theirs = import_module(f"{ms.__name__}.cost_model.mlp_model")
    trainer = mlp_baseline(0).trainer
    for name, value in theirs.TrainerConfig().to_dict().items():
        assert getattr(trainer, name) == value
    assert trainer.state.model.encoder[0].weight.shape == (theirs.SegmentSumMLPConfig().hidden_dim, PER_STORE_COLUMNS)


@pytest.mark.needs("s_tir")
def test_in_a_search_it_learns_from_any_number_of_tasks() -> None:
    model = mlp_search_model(3)
    model.trainer.num_epoch_full = 10
    rng = np.random.default_rng(0)
    columns = model.trainer.state.model.encoder[0].weight.shape[1]
    features = [rng.random((2, columns), np.float32) for _ in range(12)]
    before = model.trainer.predict_incremental(features)
    for task in ("one", "two", "three"):
        model.trainer.update(features, np.linspace(1e-3, 2e-3, 12), task)
    scores = model.trainer.predict_incremental(features)
    assert np.isfinite(scores).all()
    assert not np.allclose(scores, before)
