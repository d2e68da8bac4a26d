"""A node of the trees that are made a second time, in Python, and how an extracted graph is compared with them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tvm_gnn_cost.graphs.program_graph import ProgramGraphs, Relation


@dataclass(frozen=True)
class TreeNode:
    type: str
    parent: int  # -1: the root of a function
    is_statement: bool  # detail="statements" keeps it
    obj: Any


def check_graph(tree: ProgramGraphs, statements: ProgramGraphs, graph: int, expected: Sequence[TreeNode]) -> None:
    """Graph number ``graph`` is the expected tree, and of detail="statements" the same with nodes left out."""
    rows = slice(*tree.node_offsets[graph : graph + 2])
    assert [tree.type_names[i] for i in tree.node_type[rows]] == [node.type for node in expected]
    links = tree.edge_index[:, slice(*tree.edge_offsets[graph : graph + 2])]
    relation = tree.edge_type[slice(*tree.edge_offsets[graph : graph + 2])]
    parents = [(node.parent, i) for i, node in enumerate(expected) if node.parent >= 0]
    assert [tuple(link) for link in links[:, relation == Relation.CHILD].T.tolist()] == parents

    kept = np.array([node.is_statement for node in expected])
    rows_kept = slice(*statements.node_offsets[graph : graph + 2])
    kept_names = [statements.type_names[i] for i in statements.node_type[rows_kept]]
    assert kept_names == [node.type for node in expected if node.is_statement]
    np.testing.assert_array_equal(statements.x[rows_kept], tree.x[rows][kept])
    links_kept = kept[links].all(axis=0)
    edge_rows = slice(*statements.edge_offsets[graph : graph + 2])
    np.testing.assert_array_equal((np.cumsum(kept) - 1)[links[:, links_kept]], statements.edge_index[:, edge_rows])
    np.testing.assert_array_equal(relation[links_kept], statements.edge_type[edge_rows])
