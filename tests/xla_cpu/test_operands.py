from __future__ import annotations

import numpy as np
import pytest

from tests.xla_cpu.hlo import layout_graph
from tvm_gnn_cost.tpugraphs.format import NODE_NUMBERS, OPCODES
from tvm_gnn_cost.tpugraphs.format.featurize import featurize
from tvm_gnn_cost.xla_cpu.operands import configured_operands, output_sizes

NETWORKS = ("lstm-a", "gru-a", "query-a", "convnext-a", "densenet-a", "shufflenet-a", "mixer-a", "gmlp-a", "decoder-a")


def operands_of(numbers, opcode, edges, nodes):
    edge_index = np.array(edges, np.int64).reshape(-1, 2).T
    return configured_operands(layout_graph(numbers.astype(np.float32), np.array(opcode), edge_index, nodes)).tolist()


@pytest.mark.parametrize("name", NETWORKS)
def test_the_operands_of_networks_are_found(name: str):
    pytest.importorskip("jax")
    from tvm_gnn_cost.xla_cpu.layouts import ConfigurableFunction
    from tvm_gnn_cost.xla_cpu.networks import NETWORKS as ALL

    function = ConfigurableFunction(ALL[name].function)
    graph = featurize(function.module)
    found = configured_operands(
        layout_graph(graph["node_feat"], graph["node_opcode"], graph["edge_index"].T, function.config_nodes)
    )
    instructions = [one for computation in function.module.computations for one in computation.instructions]
    place = {one.id: number for number, one in enumerate(instructions)}
    sizes = output_sizes(graph["node_feat"])
    for row, node in zip(found.tolist(), function.config_nodes.tolist(), strict=True):
        true = [node, *(place[operand] for operand in instructions[node].operand_ids)]
        assert row == [*true, -1][:3] or (sizes[row] == sizes[true]).all(), instructions[node].name


def test_a_weight_is_told_by_its_shape_and_not_by_its_number():
    numbers = np.zeros((4, NODE_NUMBERS))
    numbers[:, 21:23] = [[5, 7], [3, 5], [3, 7], [7, 7]]
    dot, parameter = OPCODES["dot"], OPCODES["parameter"]
    opcode = [parameter, parameter, dot, dot]
    assert operands_of(numbers, opcode, [(2, 0), (2, 1)], [2]) == [[2, 1, 0]]


def test_a_product_of_a_tensor_with_itself_has_it_twice():
    numbers, dot = np.zeros((2, NODE_NUMBERS)), OPCODES["dot"]
    assert operands_of(numbers, [0, dot], [(1, 0)], [1]) == [[1, 0, 0]]
    assert operands_of(numbers, [0, dot], [(1, 0), (1, 0)], [1]) == [[1, 0, 0]]


def test_what_is_missing_is_no_node():
    numbers = np.zeros((2, NODE_NUMBERS))
    assert operands_of(numbers, [0, OPCODES["reshape"]], [(1, 0)], [1, 0]) == [[1, 0, -1], [0, -1, -1]]
    assert operands_of(numbers, [0, 0], [], []) == []


def test_numbers_that_are_no_sizes_stay_in_bounds():
    numbers = np.full((1, NODE_NUMBERS), np.nan, np.float32)
    numbers[0, 21:24] = [-3, 1e30, np.inf]
    assert output_sizes(numbers).tolist() == [[0, 2**40, 2**40, 0, 0, 0]]
