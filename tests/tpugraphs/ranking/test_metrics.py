from __future__ import annotations

import numpy as np
import pytest

from tvm_gnn_cost.tpugraphs.ranking.metrics import competition_score, graph_metrics, mean_metrics, slowdown


def test_slowdown_is_of_the_best_that_would_be_tried():
    runtime = np.array([10.0, 12.0, 15.0, 30.0])
    scores = np.array([1.0, 2.0, 3.0, 4.0])  # the slowest first
    assert slowdown(scores, runtime, 1) == pytest.approx(2)
    assert slowdown(scores, runtime, 2) == pytest.approx(0.5)
    assert slowdown(scores, runtime, 100) == 0
    assert slowdown(-scores, runtime, 1) == 0


def test_layouts_count_by_tau_and_tiles_by_the_best_of_five():
    runtime = np.arange(1.0, 21)
    right = graph_metrics("layout:xla:random", -runtime, runtime)
    assert right == {"kendall_tau": 1, "slowdown1": 0, "slowdown10": 0, "slowdown100": 0, "score": 1}
    wrong = graph_metrics("layout:nlp:default", runtime, runtime)
    assert (wrong["score"], wrong["slowdown1"], wrong["slowdown10"]) == (-1, 19, 10)
    tile = graph_metrics("tile:xla", runtime, runtime)
    assert (tile["slowdown1"], tile["slowdown5"], tile["slowdown10"]) == (19, 15, 10)
    assert tile["score"] == 2 - runtime[-5:].min() / runtime.min() == -14


def test_means():
    mean = mean_metrics([{"score": 0.5, "slowdown1": 0}, {"score": 0.7, "slowdown1": 1}])
    assert mean == {"score": pytest.approx(0.6), "slowdown1": 0.5}
    assert competition_score({"tile:xla": {"score": 0.9}, "layout:xla:random": {"score": 0.3}}) == pytest.approx(0.6)
