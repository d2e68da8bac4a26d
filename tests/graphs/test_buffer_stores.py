from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests import synthetic
from tvm_gnn_cost.graphs.buffer_stores import buffer_stores, row_width
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.graphs.values import VALUES

COLUMNS = np.array([[name for name, _ in VALUES].index(name) for name in ("extent", "unique_bytes")])


def one_graph(nodes: list[tuple[str, int, float, float]]) -> ProgramGraphs:
    """A tree of nodes, each with its type, its parent (-1 for the root), its extent and the bytes that it touches."""
    names = tuple(sorted({name for name, *_ in nodes}))
    values = np.zeros((len(nodes), len(VALUES)), np.float32)
    values[:, COLUMNS] = np.array([node[2:] for node in nodes]).reshape(-1, 2)
    edges = np.array([(node[1], child) for child, node in enumerate(nodes) if node[1] >= 0], np.int32)
    return replace(
        synthetic.graphs(1),
        type_names=names,
        node_type=np.array([names.index(name) for name, *_ in nodes], np.int32),
        x=values,
        edge_index=edges.reshape(-1, 2).T,
        edge_type=np.zeros(len(edges), np.int8),
        node_offsets=np.array([0, len(nodes)]),
        edge_offsets=np.array([0, len(edges)]),
    )


def test_a_row_has_the_store_its_heaviest_loads_and_the_innermost_loops_that_repeat() -> None:
    loops = [("For", i - 1, 2.0 + i, 0.0) for i in range(8)]
    loops[5] = ("For", 4, 1.0, 0.0)  # one iteration
    store = [("BufferStore", 7, 0.0, 10.0), ("Add", 8, 0.0, 0.0)]
    loads = [("BufferLoad", 9, 0.0, 3.0), ("BufferLoad", 9, 0.0, 5.0), ("BufferLoad", 8, 0.0, 4.0)]
    second = [("BufferStore", 0, 0.0, 7.0), ("BufferLoad", 7, 0.0, 99.0)]  # the last load belongs to no store
    result = buffer_stores(one_graph([*loops, *store, *loads, *second]), COLUMNS)
    assert result.x.shape == (2, row_width(2))
    assert result.batch.tolist() == [0, 0]
    first, other = result.x[:, 1:].reshape(2, -1, 2)
    assert result.x[:, 0].tolist() == [7, 1]
    np.testing.assert_array_equal(first[:4], [[0, 10], [0, 5], [0, 4], [0, 3]])
    np.testing.assert_array_equal(first[4:, 0], [9, 8, 6, 5, 4, 3])
    np.testing.assert_array_equal(other[0], [0, 7])
    assert np.isnan(other[1:4]).all()
    assert other[4, 0] == 2
    assert np.isnan(other[5:]).all()


def test_the_rows_of_a_graph_do_not_depend_on_the_others() -> None:
    population = synthetic.graphs(6)
    joined = ProgramGraphs.concatenate([population, one_graph([]), population])
    columns = np.arange(len(VALUES))
    result = buffer_stores(joined, columns)
    assert result.num_graphs == 13
    assert 6 not in result.batch
    assert len(result.x) > 2
    for i in range(6):
        alone = buffer_stores(population.select([i]), columns).x
        np.testing.assert_array_equal(result.x[result.batch == i], alone)
        np.testing.assert_array_equal(result.x[result.batch == 7 + i], alone)


def test_without_values_only_loops_are_counted() -> None:
    results = buffer_stores(synthetic.graphs(3), np.zeros(0, np.int64))
    assert results.x.shape[1] == row_width(0) == 1
