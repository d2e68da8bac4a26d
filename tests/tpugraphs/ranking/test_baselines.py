from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.tpugraphs.prepared import prepared
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tpugraphs.ranking.baselines import PooledTrees, fewest_constraints, pooled_features, random
from tvm_gnn_cost.tpugraphs.ranking.metrics import graph_metrics


def test_a_constraint_is_a_tensor_that_is_laid_out(tmp_path: Path):
    (graph,) = prepared(tmp_path, "layout", 1)
    rows = np.arange(len(graph.config_rows))
    expected = [
        -sum(int((node[6 * tensor : 6 * tensor + 6] >= 0).any()) for node in config for tensor in range(3))
        for config in graph.configs(rows)
    ]
    assert fewest_constraints(graph, configs_at_once=7).tolist() == expected
    (tile,) = prepared(tmp_path, "tile", 1)
    assert not fewest_constraints(tile).any()


@pytest.mark.parametrize("kind", ["layout", "tile"])
def test_trees_rank_a_graph_that_they_never_saw(kind: str, tmp_path: Path):
    *train, test = prepared(tmp_path, kind, 8)
    trees = PooledTrees(seed=0)
    trees.fit(train, rounds=50)
    assert test.runtime is not None
    assert graph_metrics(kind, trees.score(test), test.runtime)["kendall_tau"] > 0.5
    assert abs(graph_metrics(kind, random(test, 0), test.runtime)["kendall_tau"]) < 0.3
    assert np.isfinite(pooled_features(test, np.arange(3))).all()
    with pytest.raises(InputError, match="no graph with runtimes"):
        trees.fit([replace(test, runtime=None)])
