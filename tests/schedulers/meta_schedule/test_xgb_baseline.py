from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tvm.s_tir.meta_schedule.cost_model import XGBModel

from tests import synthetic
from tvm_gnn_cost.datasets.programs import MeasuredPrograms, RaggedFeatures
from tvm_gnn_cost.schedulers.meta_schedule.xgb_baseline import XGBBaseline


@pytest.fixture(scope="module")
def programs() -> MeasuredPrograms:
    """Programs of 1 to 3 stores, whose first feature says how fast they are; one has no features."""
    return synthetic.with_telling_features(synthetic.programs(4, 24))


def test_it_learns_to_rank(programs: MeasuredPrograms) -> None:
    model = XGBBaseline(seed=3)
    model.fit(programs)
    scores = model.predict(programs)
    assert scores[5] == 0
    known = np.arange(len(programs)) != 5
    assert np.corrcoef(scores[known], programs.throughput()[known])[0, 1] > 0.9


def test_programs_of_many_stores_do_not_spoil_the_training(programs: MeasuredPrograms) -> None:
    features = programs.per_store_features
    assert features is not None
    matrices = [features[i] for i in range(len(programs))]
    matrices[7] = np.repeat(matrices[7][:1], 14, axis=0)
    model = XGBBaseline(seed=3)
    model.fit(replace(programs, per_store_features=RaggedFeatures.from_matrices(matrices)))
    assert np.abs(model.predict(programs)).max() < 2


def test_its_file_is_one_of_tvms(programs: MeasuredPrograms, tmp_path: Path) -> None:
    model = XGBBaseline()
    model.fit(programs)
    model.save(tmp_path / "trees.json")
    theirs, other = XGBModel(), XGBBaseline.load(tmp_path / "trees.json")
    theirs.booster = other.booster
    features = programs.per_store_features
    assert features is not None
    np.testing.assert_array_equal(theirs._predict([features[0], features[1]]), model.predict(programs)[:2])


def test_training_logs_nothing_and_leaves_tvms_logger_as_it_was(
    programs: MeasuredPrograms, caplog: pytest.LogCaptureFixture
) -> None:
    logger = logging.getLogger("tvm.s_tir.meta_schedule.cost_model.xgb_model")
    logger.setLevel(logging.INFO)
    XGBBaseline().fit(programs)
    assert logger.level == logging.INFO
    assert not [record for record in caplog.records if record.name == logger.name]
    logger.setLevel(logging.NOTSET)
