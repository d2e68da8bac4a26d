"""What a program graph is: flat arrays for a whole population of tensor programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal

import numpy as np
import numpy.typing as npt

#: ``tree`` is the whole syntax tree, ``statements`` the same without what lies below index expressions.
Detail = Literal["tree", "statements"]


class Relation(IntEnum):
    """What an edge stands for; each edge points from the first to the second."""

    CHILD = 0  #: parent in the syntax tree -> child
    LOOP = 1  #: loop -> a buffer access inside it whose address depends on the loop's variable
    BUFFER = 2  #: a store to a buffer -> a load of the same buffer


@dataclass(frozen=True)
class ProgramGraphs:
    """A population of program graphs, laid end to end.

    Attributes:
        type_names: Normalised node type names; ``node_type`` indexes it.
        node_type: int32[N].
        values: float32[N, len(graphs.values.VALUES)], the columns in that order, already on a log scale where that
            module says so.
        edges: int32[2, E], source and target; a node's number counts from 0 within its own graph.
        relation: int8[E], a :class:`Relation`.
        node_offsets: int64[G + 1]; graph ``g`` has the nodes ``node_offsets[g]:node_offsets[g + 1]``. A graph
            that could not be extracted has none.
        edge_offsets: int64[G + 1].
        errors: Graph number -> why it could not be extracted.
        detail: Which nodes were extracted; a model reads graphs of one detail only.
    """

    type_names: tuple[str, ...]
    node_type: npt.NDArray[np.int32]
    values: npt.NDArray[np.float32]
    edges: npt.NDArray[np.int32]
    relation: npt.NDArray[np.int8]
    node_offsets: npt.NDArray[np.int64]
    edge_offsets: npt.NDArray[np.int64]
    errors: Mapping[int, str] = field(default_factory=dict)
    detail: Detail = "tree"

    def __len__(self) -> int:
        return len(self.node_offsets) - 1

    @property
    def node_counts(self) -> npt.NDArray[np.int64]:
        """int64[G], the nodes of each graph."""
        return np.diff(self.node_offsets)

    def select(self, graphs: Sequence[int] | npt.NDArray[np.int64]) -> ProgramGraphs:
        """The given graphs, in the given order."""
        graphs = np.asarray(graphs, dtype=np.int64)
        nodes, node_offsets = _gather(self.node_offsets, graphs)
        edges, edge_offsets = _gather(self.edge_offsets, graphs)
        return ProgramGraphs(
            self.type_names,
            self.node_type[nodes],
            self.values[nodes],
            self.edges[:, edges],
            self.relation[edges],
            node_offsets,
            edge_offsets,
            {new: self.errors[old] for new, old in enumerate(graphs.tolist()) if old in self.errors},
            self.detail,
        )

    @staticmethod
    def concatenate(parts: Sequence[ProgramGraphs]) -> ProgramGraphs:
        """One population out of several, whose type names may differ.

        Raises:
            ValueError: there is no part, or their details differ.
        """
        if not parts:
            raise ValueError("no program graphs to concatenate")
        details = {part.detail for part in parts}
        if len(details) > 1:
            raise ValueError("graphs of whole trees and graphs of statements do not belong together; extract one kind")
        names: dict[str, int] = {}
        types = []
        for part in parts:
            table = np.array([names.setdefault(name, len(names)) for name in part.type_names] or [0], np.int32)
            types.append(table[part.node_type])
        starts = np.cumsum([0, *(len(part) for part in parts)]).tolist()
        return ProgramGraphs(
            tuple(names),
            np.concatenate(types),
            np.concatenate([part.values for part in parts]),
            np.concatenate([part.edges for part in parts], axis=1),
            np.concatenate([part.relation for part in parts]),
            _join_offsets([part.node_offsets for part in parts]),
            _join_offsets([part.edge_offsets for part in parts]),
            {
                start + graph: error
                for start, part in zip(starts, parts, strict=False)
                for graph, error in part.errors.items()
            },
            details.pop(),
        )


def _gather(
    offsets: npt.NDArray[np.int64], graphs: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The rows of the given graphs in a flat array, and those graphs' new offsets."""
    counts = np.diff(offsets)[graphs]
    new_offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    rows = np.repeat(offsets[graphs] - new_offsets[:-1], counts) + np.arange(new_offsets[-1])
    return rows, new_offsets


def _join_offsets(parts: Sequence[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(np.concatenate([np.diff(part) for part in parts]))]).astype(np.int64)
