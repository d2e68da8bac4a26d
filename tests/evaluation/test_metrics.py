from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests import synthetic
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.evaluation import metrics
from tvm_gnn_cost.evaluation.compare import constant, random, summarise


def by_hand() -> tuple[object, np.ndarray]:
    """Two tasks of one network, weights 1 and 2, three programs each."""
    programs = synthetic.programs(2, 3)
    infos = tuple(replace(t, weights={"net": w}) for t, w in zip(programs.tasks, (1, 2), strict=True))
    latency = np.array([1.0, 2.0, 4.0, 10.0, 5.0, np.inf])
    return replace(programs, tasks=infos, latency=latency), np.array([0.2, 0.9, 0.1, 0.7, 0.3, 0.9])


def test_by_hand() -> None:
    programs, scores = by_hand()
    found, tasks = metrics.evaluate(programs, scores, scores, ("net",))
    # Best programs: 1 and 5 seconds; best-scored valid ones: 2 and 10 seconds; weights 1 and 2.
    assert found["top1"] == pytest.approx((1 + 2 * 5) / (2 + 2 * 10))
    assert found["top5"] == pytest.approx(1.0)
    # Task one orders 2 of 3 pairs, task two 0 of 1.
    assert found["pairwise_accuracy"] == pytest.approx((2 / 3 + 0) / 2)
    assert found["kendall_tau"] == pytest.approx((1 / 3 - 1) / 2)
    assert found["peak1"] == pytest.approx((3 * 0.5 + 2 * 0.5) / 5)
    # Both first picks take twice as long as the best.
    assert found["regret"] == found["regret_90"] == found["regret_99"] == pytest.approx(1.0)
    assert "pairwise_repeatable" not in found
    errors = np.array([0.2 - 1, 0.9 - 0.5, 0.1 - 0.25, 0.7 - 0.5, 0.3 - 1])
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean(errors**2)))
    assert found["huber"] == pytest.approx(np.mean(errors**2) / 2)
    assert [task.programs for task in tasks] == [3, 2]


def test_only_pairs_that_both_halves_order_alike_are_repeatable() -> None:
    programs, scores = by_hand()
    halves = np.array([[1.0, 1.1], [2.0, 2.1], [4.0, 2.0], [10.0, 11.0], [5.0, np.nan], [np.nan, np.nan]])
    found, _ = metrics.evaluate(replace(programs, halves=halves), scores, scores, ("net",))
    # The second and the third program change places; the fourth and the fifth have no second measurement.
    assert found["pairwise_repeatable"] == pytest.approx(1 / 2)


def test_the_regret_is_a_geometric_mean() -> None:
    programs, _ = by_hand()
    found, _ = metrics.evaluate(programs, np.array([1, 0, 0, 0, 1, 0.0]), np.zeros(6), ("net",))
    assert found["regret"] == 0
    found, _ = metrics.evaluate(programs, np.array([0, 0, 1, 0, 1, 0.0]), np.zeros(6), ("net",))
    assert (found["regret"], found["regret_99"]) == (pytest.approx(1.0), pytest.approx(2.97))


def test_pooled_sums_over_networks_first() -> None:
    programs, scores = by_hand()
    infos = tuple(replace(t, weights={f"net{i}": 1}) for i, t in enumerate(programs.tasks))
    found, _ = metrics.evaluate(replace(programs, tasks=infos), scores, scores, ("net0", "net1"))
    assert found["top1"] == pytest.approx((1 / 2 + 5 / 10) / 2)
    assert found["top1_pooled"] == pytest.approx((1 + 5) / (2 + 10))
    assert metrics.evaluate(replace(programs, tasks=infos), scores, scores, ("net*",))[0] == found


def test_perfect_scores_are_perfect_and_a_constant_is_chance() -> None:
    programs = synthetic.programs(12, 16)
    perfect = -programs.latency
    found, _ = metrics.evaluate(programs, perfect, perfect, ("net0", "net1"))
    assert found["pairwise_accuracy"] == found["kendall_tau"] == found["top1"] == found["top5"] == 1.0
    chance, _ = metrics.evaluate(programs, *constant(0.5)(programs), ("net0", "net1"))
    assert chance["pairwise_accuracy"] == 0.5
    assert chance["kendall_tau"] == 0.0
    assert chance["top1"] < 0.9
    lucky, _ = metrics.evaluate(programs, *random(0)(programs), ("net0", "net1"))
    assert 0.4 < lucky["pairwise_accuracy"] < 0.6


def test_nothing_to_evaluate_is_said() -> None:
    programs = synthetic.programs(2, 3)
    with pytest.raises(InputError, match="no task of alexnet"):
        metrics.evaluate(programs, programs.latency, programs.latency, ("alexnet",))


def test_a_summary_has_mean_and_spread() -> None:
    assert summarise([{"top1": 0.5}, {"top1": 0.7}])["top1"] == {
        "mean": pytest.approx(0.6),
        "std": pytest.approx(0.1 * 2**0.5),
    }
