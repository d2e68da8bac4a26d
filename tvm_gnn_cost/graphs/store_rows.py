"""The stores of each graph, each as one row of node values, which boosted trees can read."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.graphs.program_graph import Graphs, ProgramGraphs, Relation, in_parts
from tvm_gnn_cost.graphs.ragged import offsets_of
from tvm_gnn_cost.graphs.values import VALUES

#: Loads of a store and loops around it whose values stand in its row.
_LOADS, _LOOPS = 3, 6

_COLUMN = {name: column for column, (name, _) in enumerate(VALUES)}
#: Above the ``extent`` of a loop of one iteration, log2(1 + 1).
_ONCE = 1.01


@dataclass(frozen=True)
class StoreRows:
    """The S stores of G graphs.

    Attributes:
        rows: float32[S, store_width(V)] for V node values: how many loops are around the store; the values of the
            store, of the 3 of its loads that touch most bytes, and of the 6 innermost loops around it. What there is
            not is NaN.
        graph: int64[S], the graph of each store, ascending.
        size: G, graphs without stores included.
    """

    rows: npt.NDArray[np.float32]
    graph: npt.NDArray[np.int64]
    size: int


def store_width(columns: int) -> int:
    """Length of a store's row for so many node values."""
    return 1 + (1 + _LOADS + _LOOPS) * columns


def store_rows(graphs: Graphs, columns: npt.NDArray[np.int64]) -> StoreRows:
    """The stores of some graphs. Loops of one iteration are left out: they change nothing.

    Args:
        graphs: The graphs; those of a store are read a part at a time.
        columns: int64[V], numbers of the columns of ``values`` to read.

    Raises:
        InputError: the graphs are in a store, and it is damaged.
    """
    parts = [_rows_of_part(part, columns) for part in in_parts(graphs)]
    if len(parts) == 1:
        return parts[0]
    starts = offsets_of([part.size for part in parts])
    graph = [start + part.graph for start, part in zip(starts, parts, strict=False)]
    return StoreRows(np.concatenate([part.rows for part in parts]), np.concatenate(graph), len(graphs))


def _rows_of_part(graphs: ProgramGraphs, columns: npt.NDArray[np.int64]) -> StoreRows:
    parent = _parents(graphs)
    stores, loads, loops = (_nodes_of(graphs, name) for name in ("BufferStore", "BufferLoad", "For"))
    repeated = loops[graphs.x[loops, _COLUMN["extent"]] > _ONCE]
    around, count = _loops_around(stores, parent, repeated)
    nodes = np.concatenate([stores[:, None], _loads_of(graphs, stores, loads, parent), around], axis=1)
    # Whole rows are gathered: single values would take ten times as long.
    values = graphs.x[nodes.ravel()][:, columns]
    values[nodes.ravel() < 0] = np.nan
    values = values.reshape(len(stores), nodes.shape[1] * len(columns))
    rows = np.concatenate([count[:, None].astype(np.float32), values], axis=1)
    graph = np.searchsorted(graphs.node_offsets, stores, side="right") - 1
    return StoreRows(rows, graph, len(graphs))


def _nodes_of(graphs: ProgramGraphs, name: str) -> npt.NDArray[np.int64]:
    """The nodes of a type, ascending."""
    number = graphs.type_names.index(name) if name in graphs.type_names else -1
    return np.flatnonzero(graphs.node_type == number)


def _parents(graphs: ProgramGraphs) -> npt.NDArray[np.int64]:
    """The parent of each node in the syntax tree, numbered over all graphs; -1 for a root."""
    shift = np.repeat(graphs.node_offsets[:-1], np.diff(graphs.edge_offsets))
    child = graphs.edge_type == Relation.CHILD
    parent = np.full(len(graphs.node_type), -1, np.int64)
    parent[graphs.edge_index[1, child] + shift[child]] = graphs.edge_index[0, child] + shift[child]
    return parent


def _loads_of(
    graphs: ProgramGraphs,
    stores: npt.NDArray[np.int64],
    loads: npt.NDArray[np.int64],
    parent: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """The loads of each store that touch most bytes: int64[S, 3], -1 where there are fewer."""
    is_store = np.zeros(len(parent), bool)
    is_store[stores] = True
    owner = loads.copy()
    climbing = np.arange(len(loads))
    while len(climbing):
        owner[climbing] = parent[owner[climbing]]
        climbing = climbing[owner[climbing] >= 0]
        climbing = climbing[~is_store[owner[climbing]]]
    inside = owner >= 0
    row, loads = np.searchsorted(stores, owner[inside]), loads[inside]
    order = np.lexsort((-graphs.x[loads, _COLUMN["unique_bytes"]], row))
    row, loads = row[order], loads[order]
    place = np.arange(len(row)) - np.searchsorted(row, row)
    first = place < _LOADS
    out = np.full((len(stores), _LOADS), -1, np.int64)
    out[row[first], place[first]] = loads[first]
    return out


def _loops_around(
    stores: npt.NDArray[np.int64], parent: npt.NDArray[np.int64], loops: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The innermost loops around each store: int64[S, 6], -1 where there are fewer; and how many there are in all."""
    is_loop = np.zeros(len(parent), bool)
    is_loop[loops] = True
    out = np.full((len(stores), _LOOPS), -1, np.int64)
    count = np.zeros(len(stores), np.int64)
    row, node = np.arange(len(stores)), parent[stores]
    while len(row := row[node >= 0]):
        node = node[node >= 0]
        result = is_loop[node]
        near = result & (count[row] < _LOOPS)
        out[row[near], count[row[near]]] = node[near]
        count[row] += result
        node = parent[node]
    return out, count
