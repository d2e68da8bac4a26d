"""A profile of each graph: its node values as one row of fixed length, which boosted trees can read."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.graphs.ragged import offsets_of
from tvm_gnn_cost.graphs.values import VALUES

#: Node type -> number of its nodes whose own values stand in the profile: those with the most iterations.
_TYPES = {"For": 6, "BlockRealize": 0, "BufferStore": 4, "BufferLoad": 4}
_ITERATIONS = [name for name, _ in VALUES].index("iterations")

Rows = npt.NDArray[np.float32]


def profile_width(columns: int) -> int:
    """Length of a profile of so many node values."""
    return sum(1 + (3 + heaviest) * columns for heaviest in _TYPES.values())


def profiles(graphs: ProgramGraphs, columns: npt.NDArray[np.int64]) -> Rows:
    """The profiles of G graphs: float32[G, profile_width(len(columns))].

    For loops, blocks, stores and loads each: the number of nodes; the largest, the mean and the smallest of each value;
    the values of the nodes with the most iterations, in that order. What a graph does not have is NaN.

    Args:
        graphs: The graphs.
        columns: int64[V], numbers of the columns of ``values`` to read.
    """
    graph = np.repeat(np.arange(len(graphs)), graphs.node_counts)
    iterations = graphs.values[:, _ITERATIONS]
    parts = []
    for name, heaviest in _TYPES.items():
        number = graphs.type_names.index(name) if name in graphs.type_names else -1
        nodes = np.flatnonzero(graphs.node_type == number)
        nodes = nodes[np.lexsort((-iterations[nodes], graph[nodes]))]
        offsets = offsets_of(np.bincount(graph[nodes], minlength=len(graphs)))
        values = graphs.values[np.ix_(nodes, columns)]
        counts = np.diff(offsets)
        parts += [counts[:, None].astype(np.float32), _summary(values, offsets)]
        parts += [_nth(values, offsets, place) for place in range(heaviest)]
    return np.concatenate(parts, axis=1)


def _summary(values: Rows, offsets: npt.NDArray[np.int64]) -> Rows:
    """Largest, mean and smallest value of each graph's rows: float32[G, 3 * V]."""
    counts = np.diff(offsets)
    some = counts > 0
    out = np.full((len(counts), 3 * values.shape[1]), np.nan, np.float32)
    if some.any():
        starts = offsets[:-1][some]
        mean = np.add.reduceat(values, starts) / counts[some, None]
        out[some] = np.concatenate([np.maximum.reduceat(values, starts), mean, np.minimum.reduceat(values, starts)], 1)
    return out


def _nth(values: Rows, offsets: npt.NDArray[np.int64], place: int) -> Rows:
    """The row of each graph at a place among its own: float32[G, V]."""
    some = np.diff(offsets) > place
    out = np.full((len(some), values.shape[1]), np.nan, np.float32)
    out[some] = values[offsets[:-1][some] + place]
    return out
