"""Finds which node is the input of a configurable node and which its weight, which the data set calls kernel.

TpuGraphs sorts a node's edges, so that they do not tell a product's operands apart; their shapes do.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.tpugraphs.format import CONFIGURED_TENSORS, FIRST_DIMENSION_COLUMN, LAYOUT_RANK, OPCODES
from tvm_gnn_cost.tpugraphs.format.npz import ConfiguredGraph

#: Stands in the place of a tensor that a node does not have.
NO_NODE = -1
#: Columns of a convolution's window sizes and of its dimension numbers, see ``format/featurize.py``.
_WINDOW = slice(37, 41)
_WEIGHT_OUTPUT, _WEIGHT_SPATIAL, _OUTPUT_FEATURE = 100, slice(101, 105), 106


def output_sizes(numbers: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """The first six dimensions of each node's output, int64[n, 6], padded with 0.

    Args:
        numbers: float32[n, 134 or more], as published.
    """
    return _whole(numbers[:, FIRST_DIMENSION_COLUMN : FIRST_DIMENSION_COLUMN + LAYOUT_RANK])


def configured_operands(graph: ConfiguredGraph) -> npt.NDArray[np.int64]:
    """The nodes whose outputs are each configurable node's output, input and weight, int64[nc, 3]; -1 for none.

    A node with two operands of the same shape gets them in the order of their numbers.
    """
    numbers, opcode, edge_index, config_nodes = graph.node_feat, graph.node_opcode, graph.edge_index, graph.config_nodes
    sizes = output_sizes(numbers)
    by_consumer = np.argsort(edge_index[0], kind="stable")
    consumer, producer = edge_index[:, by_consumer]
    begins, ends = (np.searchsorted(consumer, config_nodes, side) for side in ("left", "right"))
    tensors = np.full((len(config_nodes), CONFIGURED_TENSORS), NO_NODE, np.int64)
    tensors[:, 0] = config_nodes
    for row, (node, begin, end) in enumerate(zip(config_nodes.tolist(), begins, ends, strict=True)):
        operands = producer[begin:end].tolist()
        if not operands:
            continue
        if opcode[node] == OPCODES["reshape"]:
            tensors[row, 1] = operands[0]
        elif len(operands) == 1:  # A product of a tensor with itself.
            tensors[row, 1:] = operands[0]
        else:
            if opcode[node] == OPCODES["convolution"]:
                weights = [
                    operand for operand in operands if _is_convolution_weight(numbers[node], sizes, node, operand)
                ]
            else:
                weights = [operand for operand in operands if _is_dot_weight(sizes, node, operand)]
            weight = (weights or operands)[-1]
            tensors[row, 1:] = next((operand for operand in operands if operand != weight), weight), weight
    return tensors


def _is_convolution_weight(
    numbers: npt.NDArray[np.float32], sizes: npt.NDArray[np.int64], node: int, operand: int
) -> bool:
    """Whether an operand has the window's sizes and as many output features as the convolution."""
    window = _whole(numbers[_WINDOW])
    window = window[window > 0]
    spatial = _whole(numbers[_WEIGHT_SPATIAL])[: len(window)] % LAYOUT_RANK
    features = _whole(numbers[[_WEIGHT_OUTPUT, _OUTPUT_FEATURE]]) % LAYOUT_RANK
    is_window = sizes[operand, spatial] == window
    return bool(is_window.all() and sizes[operand, features[0]] == sizes[node, features[1]])


def _is_dot_weight(sizes: npt.NDArray[np.int64], node: int, operand: int) -> bool:
    """Whether an operand's leading dimensions are not those of the product: then they are not its input's."""
    leading = max(0, np.count_nonzero(sizes[operand]) - 1)
    return bool((sizes[operand, :leading] != sizes[node, :leading]).any())


def _whole(values: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    return np.nan_to_num(values).clip(0, 2**40).astype(np.int64)
