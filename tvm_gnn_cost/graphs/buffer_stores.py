"""A feature vector for each BufferStore of a graph, for boosted trees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.graphs.program_graph import Graphs, ProgramGraphs, Relation, in_parts
from tvm_gnn_cost.graphs.ragged import offsets_of
from tvm_gnn_cost.graphs.values import COLUMN, ONCE

#: Numbers of loads and of enclosing loops per buffer store.
_LOADS, _LOOPS = 3, 6


@dataclass(frozen=True)
class BufferStores:
    """The S buffer stores of G graphs.

    Attributes:
        x: float32[S, row_width(V)] for V node features: the number of enclosing loops, and the features of the buffer
            store, of its 3 loads that touch most bytes, and of the 6 innermost enclosing loops; NaN where there are
            fewer.
        batch: int64[S], the index of each buffer store's graph, ascending.
        num_graphs: G, including graphs without buffer stores.
    """

    x: npt.NDArray[np.float32]
    batch: npt.NDArray[np.int64]
    num_graphs: int


def row_width(columns: int) -> int:
    """Length of a row for the given number of node features."""
    return 1 + (1 + _LOADS + _LOOPS) * columns


def buffer_stores(graphs: Graphs, columns: npt.NDArray[np.int64]) -> BufferStores:
    """The buffer stores of graphs. Loops of one iteration are skipped.

    Args:
        graphs: The graphs; graphs on disk are read in parts.
        columns: int64[V], columns of ``graphs.x`` to read.

    Raises:
        InputError: a file of their graph store is damaged.
    """
    parts = [_rows_of_part(part, columns) for part in in_parts(graphs)]
    if len(parts) == 1:
        return parts[0]
    starts = offsets_of([part.num_graphs for part in parts])
    graph = [start + part.batch for start, part in zip(starts, parts, strict=False)]
    return BufferStores(np.concatenate([part.x for part in parts]), np.concatenate(graph), len(graphs))


def _rows_of_part(graphs: ProgramGraphs, columns: npt.NDArray[np.int64]) -> BufferStores:
    parent = _parents(graphs)
    stores, loads, loops = (nodes_of(graphs, name) for name in ("BufferStore", "BufferLoad", "For"))
    repeated = loops[graphs.x[loops, COLUMN["extent"]] > ONCE]
    around, count = _loops_around(stores, parent, repeated)
    nodes = np.concatenate([stores[:, None], _loads_of(graphs, stores, loads, parent), around], axis=1)
    # Gathering whole rows is ten times as fast as gathering elements.
    values = graphs.x[nodes.ravel()][:, columns]
    values[nodes.ravel() < 0] = np.nan
    values = values.reshape(len(stores), nodes.shape[1] * len(columns))
    rows = np.concatenate([count[:, None].astype(np.float32), values], axis=1)
    graph = np.searchsorted(graphs.node_offsets, stores, side="right") - 1
    return BufferStores(rows, graph, len(graphs))


def nodes_of(graphs: ProgramGraphs, name: str) -> npt.NDArray[np.int64]:
    """The nodes of a type, ascending."""
    number = graphs.type_names.index(name) if name in graphs.type_names else -1
    return np.flatnonzero(graphs.node_type == number)


def _parents(graphs: ProgramGraphs) -> npt.NDArray[np.int64]:
    """The parent of each node in the syntax tree, as an index over all graphs; -1 for a root."""
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
    """The loads of each buffer store that touch most bytes: int64[S, 3], -1 where there are fewer."""
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
    order = np.lexsort((-graphs.x[loads, COLUMN["unique_bytes"]], row))
    row, loads = row[order], loads[order]
    place = np.arange(len(row)) - np.searchsorted(row, row)
    first = place < _LOADS
    out = np.full((len(stores), _LOADS), -1, np.int64)
    out[row[first], place[first]] = loads[first]
    return out


def _loops_around(
    stores: npt.NDArray[np.int64], parent: npt.NDArray[np.int64], loops: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The innermost loops around each buffer store, int64[S, 6], -1 where there are fewer; and the number of loops."""
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
