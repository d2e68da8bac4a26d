from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.tpugraphs.models.configured import graph, repeated
from tvm_gnn_cost.tpugraphs.models.configured_graph import ConfiguredInput
from tvm_gnn_cost.tpugraphs.models.sharing import gather


def each(given: ConfiguredInput) -> np.ndarray:
    """int64[c, n]: the encoder's row of every node."""
    return given.sharing.encoded.row[:, given.sharing.level(0).of_node]


def neighbours(given: ConfiguredInput, node: int) -> np.ndarray:
    edges = given.edges_both_ways.numpy()
    return edges[0][edges[1] == node]


@pytest.mark.parametrize("given", [repeated(), graph(), graph("tile"), graph(nodes=1)])
def test_classes_are_exactly_the_nodes_with_equal_surroundings(given: ConfiguredInput):
    equal = [(each(given).T[:, None] == each(given).T[None]).all(axis=2)]
    # Nodes with layouts are not looked at again when they happen to be equal in every configuration.
    for node in given.config_nodes.tolist():
        equal[0][node] = equal[0][:, node] = False
        equal[0][node, node] = True
    for level in range(3):
        of_node = given.sharing.level(level).of_node
        np.testing.assert_array_equal(of_node[:, None] == of_node[None], equal[level])
        # Two nodes stay equal if they have equally many neighbours of each class.
        around = np.array([np.bincount(of_node[neighbours(given, node)], minlength=99) for node in range(len(of_node))])
        equal.append(equal[level] & (around[:, None] == around[None]).all(axis=2))


@pytest.mark.parametrize("given", [repeated(), graph()])
def test_a_class_has_a_first_node_and_a_size(given: ConfiguredInput):
    for level in (given.sharing.level(0), given.sharing.level(2)):
        np.testing.assert_array_equal(level.of_node[level.first], np.arange(len(level.first)))
        np.testing.assert_array_equal(level.size, np.bincount(level.of_node))


def test_rows_are_the_features_and_layouts_of_every_node():
    given = repeated()
    found, count = given.sharing.encoded, len(given.opcode)
    layouts = torch.full((5, count, 18), -1, dtype=torch.int8)
    layouts[:, given.config_nodes] = given.configs
    np.testing.assert_array_equal(found.layout[found.layout_of[each(given)]], layouts)
    assert len(np.unique(found.layout, axis=0)) == len(found.layout)
    node = found.node[found.node_of[each(given)]]
    np.testing.assert_array_equal(given.numbers[node], given.numbers.expand(5, -1, -1))
    np.testing.assert_array_equal(given.opcode[node], given.opcode.expand(5, -1))
    place = found.place[:, given.sharing.level(0).of_node]
    np.testing.assert_array_equal(found.row_in_config[place], each(given))
    np.testing.assert_array_equal(found.config[place], np.tile(np.arange(5)[:, None], count))
    shares = np.bincount(place.ravel(), minlength=len(found.share)) / count
    np.testing.assert_allclose(found.share, shares, rtol=1e-6)


@pytest.mark.parametrize("averages", [True, False])
def test_a_neighbourhood_is_all_neighbours_and_the_node(averages: bool):
    given = repeated()
    sharing, classes = given.sharing, np.array([3, 0, 5])
    found = sharing.neighbourhood(2, classes, averages=averages)
    ends = [*found.begins[1:], len(found.members)]
    for one, begin, end in zip(classes, found.begins, ends, strict=True):
        node = sharing.level(2).first[one]
        around = sharing.level(1).of_node[neighbours(given, node)]
        members = found.members[begin:end]
        assert members[-1] == sharing.level(1).of_node[node]
        assert sorted(members[:-1]) == sorted(around)
        assert found.is_own[begin:end].tolist() == [False] * len(around) + [True]
        np.testing.assert_allclose(found.weight[begin : end - 1], 1 / len(around) if averages else 1)
        assert found.weight[end - 1] == 1


def test_an_edge_in_both_directions_counts_twice():
    given = graph()
    twice = replace(given, edge_index=given.edges_both_ways)
    found = twice.sharing.neighbourhood(1, np.arange(6), averages=False)
    np.testing.assert_array_equal(found.weight[~found.is_own], 2)


def test_gathered_rows_get_the_sum_of_their_gradients():
    table = torch.randn(4, 3, requires_grad=True)
    index = torch.tensor([[2, 0], [2, 2]])
    torch.testing.assert_close(gather(table, index), table[index])
    (gradient,) = torch.autograd.grad(gather(table, index).sum(), table)
    assert gradient[:, 0].tolist() == [1, 0, 3, 0]
