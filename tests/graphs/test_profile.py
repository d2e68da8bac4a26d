from __future__ import annotations

from dataclasses import replace

import numpy as np

from tests import synthetic
from tvm_gnn_cost.graphs.profile import profile_width, profiles
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.graphs.values import VALUES

COLUMNS = np.array([[name for name, _ in VALUES].index(name) for name in ("extent", "iterations")])
#: Two values: a number of nodes, three summaries, and 6 loops, no block, 4 stores and 4 loads by themselves.
FOR, BLOCK, STORE, LOAD = 0, 1 + 9 * 2, 2 + 12 * 2, 3 + 19 * 2


def one_graph(types: list[str], extent: list[float], iterations: list[float]) -> ProgramGraphs:
    """A graph without edges whose nodes have these types and values."""
    names = tuple(sorted(set(types)))
    values = np.zeros((len(types), len(VALUES)), np.float32)
    values[:, COLUMNS] = np.stack([extent, iterations], 1)
    return replace(
        synthetic.graphs(1),
        type_names=names,
        node_type=np.array([names.index(name) for name in types], np.int32),
        values=values,
        edges=np.zeros((2, 0), np.int32),
        relation=np.zeros(0, np.int8),
        node_offsets=np.array([0, len(types)]),
        edge_offsets=np.array([0, 0]),
    )


def test_a_profile_has_the_number_the_summary_and_the_heaviest_nodes_of_each_type() -> None:
    graph = one_graph(["For", "BufferStore", "For", "Add", "For"], [1, 2, 3, 4, 8], [5, 7, 6, 9, 6])
    (row,) = profiles(graph, COLUMNS)
    assert len(row) == profile_width(2) == LOAD + 1 + 7 * 2
    assert row[FOR] == 3
    np.testing.assert_allclose(row[FOR + 1 : FOR + 7], [8, 6, 4, 17 / 3, 1, 5], rtol=1e-6)
    # The most iterations first; of equals, the first in the graph.
    np.testing.assert_array_equal(row[FOR + 7 : FOR + 13], [3, 6, 8, 6, 1, 5])
    assert np.isnan(row[FOR + 13 : BLOCK]).all()
    assert row[BLOCK] == 0
    assert np.isnan(row[BLOCK + 1 : STORE]).all()
    np.testing.assert_array_equal(row[STORE : STORE + 9], [1, 2, 7, 2, 7, 2, 7, 2, 7])
    assert row[LOAD] == 0
    assert np.isnan(row[LOAD + 1 :]).all()


def test_the_profile_of_a_graph_does_not_depend_on_the_others() -> None:
    population = synthetic.graphs(6)
    empty = one_graph([], [], [])
    joined = ProgramGraphs.concatenate([population, empty, population])
    columns = np.arange(len(VALUES))
    found = profiles(joined, columns)
    np.testing.assert_array_equal(found[:6], found[7:])
    np.testing.assert_array_equal(
        found[:6], np.concatenate([profiles(population.select([i]), columns) for i in range(6)])
    )
    assert found[6, 0] == 0
    assert np.isnan(found[6, 1 : 1 + 9 * len(VALUES)]).all()


def test_without_values_only_nodes_are_counted() -> None:
    population = synthetic.graphs(3)
    found = profiles(population, np.zeros(0, np.int64))
    assert found.shape == (3, profile_width(0)) == (3, 4)
    assert found.sum() == population.node_counts.sum()
