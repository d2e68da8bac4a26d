from __future__ import annotations

from dataclasses import replace
from io import StringIO

import numpy as np
import pytest
from rich.console import Console
from scipy.special import expit

from tests import synthetic
from tests.models.test_tvm_baselines import SumOfStores
from tvm_gnn_cost.datasets.programs import MeasuredPrograms
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.evaluation.compare import (
    Prediction,
    compare,
    constant,
    gnn,
    node_count,
    random,
    summarise,
    table,
    trained_xgb,
    trees,
)
from tvm_gnn_cost.evaluation.metrics import METRICS, evaluate
from tvm_gnn_cost.graphs.buffer_stores import buffer_stores
from tvm_gnn_cost.models.buffer_store_trees import grow_trees
from tvm_gnn_cost.models.topk_gnn import PRESETS
from tvm_gnn_cost.scoring.cost_model import CostModel
from tvm_gnn_cost.scoring.scorer import Scorer
from tvm_gnn_cost.training.fit import new_checkpoint


@pytest.fixture
def programs() -> MeasuredPrograms:
    return synthetic.with_features(synthetic.programs(4, 8, failed=1))


def oracle(programs: MeasuredPrograms) -> Prediction:
    return -programs.latency, programs.throughput().astype(np.float64)


def test_models_are_evaluated_on_the_given_networks(programs: MeasuredPrograms) -> None:
    found = compare({"oracle": oracle, "constant": constant(0.5)}, programs, ["net0"])
    assert list(found) == ["oracle", "constant"]
    assert found["oracle"].metrics["top1"] == found["oracle"].metrics["r2"] == 1
    assert found["oracle"].metrics["rmse"] == 0
    assert found["constant"].metrics["pairwise_accuracy"] == 0.5
    assert [task.task for task in found["oracle"].tasks] == ["task0", "task2"]
    expected = evaluate(programs, *oracle(programs), ("net1",))
    other = compare({"oracle": oracle}, programs, ["net1"])["oracle"]
    assert (other.metrics, other.tasks) == expected


def test_a_trained_model_predicts_its_calibrated_throughput(programs: MeasuredPrograms) -> None:
    config = replace(PRESETS["gnn"], hidden=16, layers=1, head=(16,))
    checkpoint = new_checkpoint(config, synthetic.vectors(), programs, seed=0)
    checkpoint = replace(checkpoint, calibration=(2.0, -1.0))
    scores, throughput = gnn(CostModel(checkpoint))(programs)
    scorer = Scorer(checkpoint)
    np.testing.assert_array_equal(scores, scorer.score(programs.graphs))
    np.testing.assert_array_equal(throughput, scorer.throughput(scores))
    other = replace(programs, graphs=replace(programs.graphs, detail="tree"))
    with pytest.raises(InputError, match="reads graphs of detail 'statements'"):
        gnn(CostModel(checkpoint))(other)


def test_the_trees_of_a_checkpoint_predict_without_its_network(programs: MeasuredPrograms) -> None:
    checkpoint = new_checkpoint(PRESETS["gnn"], synthetic.vectors(), programs, seed=0)
    rows = buffer_stores(programs.graphs, Scorer(checkpoint).columns)
    grown = grow_trees(rows, programs.throughput(), programs.task, count=5, seed=0)
    scores, throughput = trees(CostModel(replace(checkpoint, trees=grown, calibration=(2.0, -1.0))))(programs)
    np.testing.assert_array_equal(scores, grown.score(rows))
    np.testing.assert_allclose(throughput, expit(2 * scores - 1))


def test_xgboost_predicts_on_features(programs: MeasuredPrograms) -> None:
    xgb = SumOfStores()
    xgb.fit(programs)
    scores, throughput = trained_xgb(xgb)(programs)
    np.testing.assert_array_equal(scores, xgb.predict(programs))
    np.testing.assert_array_equal(scores, throughput)


def test_the_trivial_baselines(programs: MeasuredPrograms) -> None:
    scores, throughput = constant(0.25)(programs)
    assert set(scores) == set(throughput) == {0.25}
    scores, throughput = random(3)(programs)
    assert len(set(scores)) == len(programs)
    assert ((throughput >= 0) & (throughput <= 1)).all()
    np.testing.assert_array_equal(random(3)(programs)[0], scores)
    assert not np.array_equal(random(4)(programs)[0], scores)
    scores, throughput = node_count(0.5)(programs)
    assert scores.argmax() == programs.graphs.node_counts.argmin()
    assert set(throughput) == {0.5}


def test_runs_are_summarised_metric_by_metric() -> None:
    runs = [{"top1": 0.5, "rmse": 1.0}, {"top1": 0.7, "rmse": 1.0}]
    assert summarise(runs) == {
        "top1": {"mean": pytest.approx(0.6), "std": pytest.approx(np.std([0.5, 0.7], ddof=1))},
        "rmse": {"mean": 1.0, "std": 0.0},
    }
    assert summarise(runs[:1])["top1"] == {"mean": 0.5, "std": 0.0}


def test_the_table_has_a_row_a_metric_and_a_column_a_model() -> None:
    rows = {
        "gnn": summarise([{"top1": 0.5, "rmse": 0.1}, {"top1": 0.7, "rmse": 0.1}]),
        "xgb": summarise([{"top1": 0.25, "rmse": 0.2}]),
    }
    out = StringIO()
    Console(file=out, width=100).print(table("accuracy", rows))
    lines = [line.split() for line in out.getvalue().splitlines()]
    assert lines[0] == ["accuracy"]
    assert [line for line in lines if "↑" in line] == [["│", "top1", "↑", "│", "0.600", "±0.141", "│", "0.250", "│"]]
    assert [line for line in lines if "↓" in line] == [["│", "rmse", "↓", "│", "0.100", "│", "0.200", "│"]]
    # In the order of METRICS, whatever that of the rows.
    assert list(METRICS).index("rmse") < list(METRICS).index("top1")
    assert out.getvalue().index("rmse") < out.getvalue().index("top1")
