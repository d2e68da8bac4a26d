from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import xgboost

from tests import synthetic
from tvm_gnn_cost.datasets.programs import PER_STORE_COLUMNS, MeasuredPrograms, RaggedFeatures
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.models.tvm_baselines import Matrices, OfflineXGB


class SumOfStores(OfflineXGB):
    """Boosted trees on the sum over a program's stores."""

    def __init__(self) -> None:
        self._booster = xgboost.Booster()
        self.seen: tuple[Matrices, list[float], list[int]] = ([], [], [])

    def train(self, features: Matrices, throughput: npt.NDArray[np.float32], task: npt.NDArray[np.int32]) -> None:
        self.seen = (features, throughput.tolist(), task.tolist())
        rows = np.stack([matrix.sum(axis=0) for matrix in features])
        self.booster = xgboost.train({"max_depth": 3, "nthread": 1}, xgboost.DMatrix(rows, label=throughput), 20)

    def predict_throughput(self, features: Matrices) -> npt.NDArray[np.float64]:
        rows = np.stack([matrix.sum(axis=0) for matrix in features])
        return np.asarray(self.booster.predict(xgboost.DMatrix(rows)), np.float64)

    @property
    def booster(self) -> xgboost.Booster:
        return self._booster

    @booster.setter
    def booster(self, booster: xgboost.Booster) -> None:
        self._booster = booster


@pytest.fixture
def programs() -> MeasuredPrograms:
    """Twelve programs; one failed, and one of another task has no store."""
    measured = synthetic.with_features(synthetic.programs(2, 6, failed=1))
    features = measured.per_store_features
    assert features is not None
    matrices = [features[i] if i != 7 else features[i][:0] for i in range(12)]
    return replace(measured, per_store_features=RaggedFeatures.from_matrices(matrices))


@pytest.fixture
def trees(programs: MeasuredPrograms) -> SumOfStores:
    made = SumOfStores()
    made.fit(programs)
    return made


def test_it_trains_on_all_programs_that_have_stores(programs: MeasuredPrograms, trees: SumOfStores) -> None:
    rows = [i for i in range(12) if i != 7]
    features, throughput, task = trees.seen
    assert programs.per_store_features is not None
    for found, i in zip(features, rows, strict=True):
        np.testing.assert_array_equal(found, programs.per_store_features[i])
    assert throughput == programs.throughput()[rows].tolist()
    assert throughput[0] == 0
    assert task == programs.task[rows].tolist()


def test_a_program_without_stores_is_predicted_to_be_the_slowest(
    programs: MeasuredPrograms, trees: SumOfStores
) -> None:
    found = trees.predict(programs)
    assert found[7] == 0
    assert (found.dtype, len(found)) == (np.float64, 12)
    others = [i for i in range(12) if i != 7]
    assert np.corrcoef(found[others], programs.throughput()[others])[0, 1] > 0.8


def test_programs_without_features_are_refused(trees: SumOfStores) -> None:
    without = synthetic.programs(1, 4)
    for method in (trees.fit, trees.predict):
        with pytest.raises(
            InputError, match="no per-store features, which TVM's models read; extract it again with --features"
        ):
            method(without)


@pytest.mark.parametrize("name", ["trees.json", "trees.ubj", "trees", "new folder/trees.json"])
def test_a_saved_model_predicts_the_same(
    programs: MeasuredPrograms, trees: SumOfStores, tmp_path: Path, name: str
) -> None:
    path = tmp_path / name
    trees.save(path)
    expected = tmp_path / f"expected{path.suffix}"
    trees.booster.save_model(expected)
    assert path.read_bytes() == expected.read_bytes()
    loaded = SumOfStores.load(path)
    np.testing.assert_array_equal(loaded.predict(programs), trees.predict(programs))
    trees.save(path)
    assert os.listdir(path.parent).count(path.name) == 1


@pytest.mark.parametrize("suffix", ["json", "ubj"])
@pytest.mark.parametrize("damage", ["cut", "empty", "text", "bytes", "flipped", "other JSON"])
def test_a_damaged_file_is_named(trees: SumOfStores, tmp_path: Path, suffix: str, damage: str) -> None:
    path = tmp_path / f"trees.{suffix}"
    trees.save(path)
    whole = path.read_bytes()
    path.write_bytes(
        {
            "cut": whole[: len(whole) // 2],
            "empty": b"",
            "text": b"hello, world",
            "bytes": bytes(range(256)),
            "flipped": whole[:200] + b"\xff" + whole[201:],
            "other JSON": b'{"learner": {}}',
        }[damage]
    )
    with pytest.raises(InputError, match=rf"trees\.{suffix}: not a model file of XGBoost \("):
        SumOfStores.load(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.json: there is no such file; 'tvm-gnn-cost train --model xgb' makes"):
        SumOfStores.load(tmp_path / "none.json")


def test_a_model_of_something_else_is_refused(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).random((20, 3))
    xgboost.train({}, xgboost.DMatrix(rows, label=rows[:, 0]), 2).save_model(tmp_path / "other.json")
    with pytest.raises(InputError, match=f"a model of 3 features, not of TVM's {PER_STORE_COLUMNS} per-store ones"):
        SumOfStores.load(tmp_path / "other.json")
