from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tvm.auto_scheduler.cost_model import XGBModel
from tvm.auto_scheduler.cost_model.xgb_model import feature_to_pack_sum_xgbmatrix, predict_throughput_pack_sum

from tests import synthetic
from tvm_gnn_cost.datasets.programs import MeasuredPrograms
from tvm_gnn_cost.schedulers.auto_scheduler.xgb_baseline import XGBBaseline


@pytest.fixture(scope="module")
def programs() -> MeasuredPrograms:
    """Programs of 1 to 3 stores, whose first feature says how fast they are; one has no features."""
    return synthetic.with_telling_features(synthetic.programs(4, 24))


def test_it_learns_to_rank_and_repeats_itself(programs: MeasuredPrograms) -> None:
    first, second = XGBBaseline(seed=3), XGBBaseline(seed=3)
    for model in (first, second):
        model.fit(programs)
    scores = first.predict(programs)
    assert scores[5] == 0
    known = np.arange(len(programs)) != 5
    assert np.corrcoef(scores[known], programs.throughput()[known])[0, 1] > 0.9
    np.testing.assert_array_equal(second.predict(programs), scores)


def test_its_file_is_one_of_tvms(programs: MeasuredPrograms, tmp_path: Path) -> None:
    model, theirs = XGBBaseline(), XGBModel(verbose_eval=0)
    model.fit(programs)
    model.save(tmp_path / "trees.json")
    theirs.load(str(tmp_path / "trees.json"))
    features = programs.per_store_features
    assert features is not None
    matrix, packs = feature_to_pack_sum_xgbmatrix([features[0], features[1]])
    predicted = predict_throughput_pack_sum(theirs.bst.predict(matrix), packs)
    np.testing.assert_array_equal(predicted, model.predict(programs)[:2])


def test_seed_0_is_a_seed() -> None:
    assert XGBBaseline(0).model.xgb_params["seed"] == 1
