from __future__ import annotations

import numpy as np
import pytest

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.training.scale import Scale


def test_a_graph_at_a_time_is_as_good_as_all_at_once():
    rng = np.random.default_rng(0)
    graphs = [rng.normal(1e6, 3, (n, 4)).astype(np.float32) for n in (5, 0, 1, 50)]
    for graph in graphs:
        graph[:, 2] = 7  # never changes
    whole = np.concatenate(graphs).astype(np.float64)
    scale = Scale.fit(graphs)
    np.testing.assert_allclose(scale.mean, whole.mean(0))
    np.testing.assert_allclose(scale.deviation[[0, 1, 3]], whole.std(0)[[0, 1, 3]])
    scaled = scale.apply(np.concatenate(graphs))
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled.std(0)[[0, 1, 3]], 1, rtol=1e-3)
    assert not scaled[:, 2].any()
    with pytest.raises(InputError, match="there is no node"):
        Scale.fit([np.zeros((0, 3), np.float32)])


def test_logarithms():
    graph = np.array([[0, -3], [np.expm1(2), 3]], np.float32)
    scale = Scale.fit([graph], is_log=True)
    np.testing.assert_allclose(scale.mean, [1, 0], atol=1e-6)
    np.testing.assert_allclose(scale.apply(graph), [[-1, -1], [1, 1]], rtol=1e-5)


@pytest.mark.parametrize("is_log", [False, True])
def test_a_column_that_never_changed_says_nothing_where_it_does(is_log: bool):
    rng = np.random.default_rng(0)
    graphs = [np.full((n, 1), value, np.float32) for n in rng.integers(1, 400, 20) for value in (0.1,)]
    other = Scale.fit(graphs, is_log=is_log).apply(np.array([[0.1], [1.1]], np.float32))
    assert not other.any()
