"""Small HLO graphs written by hand, as the arrays of a published file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tvm_gnn_cost.tpugraphs.format import NODE_FEATURES, OPCODES
from tvm_gnn_cost.tpugraphs.format.npz import ConfiguredGraph

#: An instruction: its opcode, its shape, its operands, and its list of dimensions.
Line = tuple[str, tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def line(opcode: str, shape: tuple[int, ...], *operands: int, dimensions: tuple[int, ...] = ()) -> Line:
    return opcode, shape, operands, dimensions


def instructions(lines: Sequence[Line], config_nodes: Sequence[int] = ()) -> ConfiguredGraph:
    node_feat = np.zeros((len(lines), NODE_FEATURES), np.float32)
    for row, (_, shape, _, dimensions) in zip(node_feat, lines, strict=True):
        row[21 : 21 + len(shape)] = shape
        row[31 : 31 + len(dimensions)] = dimensions
    opcode = np.array([OPCODES[name] for name, *_ in lines])
    edges = [(node, operand) for node, (_, _, operands, _) in enumerate(lines) for operand in operands]
    edge_index = np.array(sorted(set(edges)), np.int64).reshape(-1, 2).T
    return layout_graph(node_feat, opcode, edge_index, config_nodes)


def layout_graph(
    node_feat: np.ndarray, opcode: np.ndarray, edge_index: np.ndarray, config_nodes: Sequence[int]
) -> ConfiguredGraph:
    """A graph without configurations, as ``read_graph`` returns it."""
    nodes = np.array(config_nodes, np.int64)
    return ConfiguredGraph(
        Path("graph.npz"), "layout", node_feat, opcode.astype(np.int64), edge_index, nodes, (0, len(nodes), 18), None
    )


def config(*nodes: dict[int, tuple[int, ...]]) -> np.ndarray:
    """int8[nc, 18] from the layouts of each configurable node: 0 is its output, 1 its input, 2 its kernel."""
    out = np.full((len(nodes), 3, 6), -1, np.int8)
    for node, layouts in enumerate(nodes):
        for place, layout in layouts.items():
            out[node, place, : len(layout)] = layout
    return out.reshape(-1, 18)
