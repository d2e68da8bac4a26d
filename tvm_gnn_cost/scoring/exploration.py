"""Exploration in a search: kinds of programs that were hardly measured yet get a share of the candidates."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.graphs.buffer_stores import nodes_of
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs
from tvm_gnn_cost.graphs.values import COLUMN, ONCE

#: At most every fifth place of a ranking goes to a program that the model would have placed lower.
_EVERY = 5


def structures(graphs: ProgramGraphs) -> npt.NDArray[np.int64]:
    """The structure of each of G programs: int64[G], equal for programs with the same numbers of each kind of store.

    The kind of a buffer store is whether it writes to a parameter, whether it updates what it loads, and whether it is
    vectorized. Whether an intermediate result is stored at all and which statements are vectorized are decisions
    of a schedule that a model gets wrong for all programs alike, unlike the sizes of tiles.
    """
    rows = nodes_of(graphs, "BufferStore")
    is_param = graphs.x[rows, COLUMN["buffer_is_param"]] > 0
    is_update = graphs.x[rows, COLUMN["is_update"]] > 0
    is_vectorized = graphs.x[rows, COLUMN["vectorized_iterations"]] > ONCE
    kind = is_param + 2 * is_update + 4 * is_vectorized
    graph = np.searchsorted(graphs.node_offsets, rows, side="right") - 1
    counts = np.bincount(8 * graph + kind, minlength=8 * len(graphs)).reshape(len(graphs), 8)
    structure: npt.NDArray[np.int64] = np.minimum(counts, 127) @ (1 << np.arange(0, 64, 8))
    return structure


def explore(
    scores: npt.NDArray[np.float64],
    structure: npt.NDArray[np.int64],
    measured: npt.NDArray[np.int64],
    enough: int,
) -> npt.NDArray[np.float64]:
    """Raises the scores of the best candidates of structures with few measured programs: float64[P].

    They share every fifth place of the ranking. Without this a search measures only structures that the model
    overestimates, and never learns that another one is faster.

    Args:
        scores: float64[P], scores of a task's candidates.
        structure: int64[P], the structure of each.
        measured: int64[M], the structure of each measured program of the task.
        enough: Number of measured programs with which a structure is known.

    >>> explore(np.array([0.9, 0.8, 0.7, 0.6, 0.5, 0.1, 0.2]), np.array([1, 1, 1, 1, 1, 2, 2]), np.array([1, 1, 1]), 3)
    array([0.9, 0.8, 0.7, 0.6, 0.5, 0.1, 0.5])
    """
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    kinds, kind = np.unique(np.concatenate([structure[order], measured]), return_inverse=True)
    kind, kind_of_measured = kind[: len(order)], kind[len(order) :]
    count = np.bincount(kind_of_measured, minlength=len(kinds))[kind]
    by_kind = np.argsort(kind, kind="stable")
    place = np.empty(len(kind), np.int64)
    place[by_kind] = np.arange(len(kind)) - np.searchsorted(kind[by_kind], kind[by_kind])
    # As many as were measured, and one more: the best ones may be measured.
    chosen = order[(count < enough) & (place <= count) & np.isfinite(ranked)][: len(order) // _EVERY]
    result = scores.copy()
    result[chosen] = np.maximum(scores[chosen], ranked[_EVERY - 1 :: _EVERY][: len(chosen)])
    return result
