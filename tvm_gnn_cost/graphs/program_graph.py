"""Program graphs: the syntax trees of many tensor programs in flat arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Literal, Protocol, Self

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.ragged import gather, join

#: ``tree`` has every node of the syntax tree; ``statements`` omits indices, bindings, regions and declarations.
Detail = Literal["tree", "statements"]

#: Far above all node features, most of which are logarithms.
_LARGEST = 1e18

#: The arrays of :class:`ProgramGraphs` -> their names in stores and checkpoints, which are older.
FILE_NAMES = {
    "node_type": "node_type",
    "x": "values",
    "edge_index": "edges",
    "edge_type": "relation",
    "node_offsets": "node_offsets",
    "edge_offsets": "edge_offsets",
}

#: Graphs that :func:`in_parts` reads at once: about 100 MB.
_AT_ONCE = 4096


class Relation(IntEnum):
    """Meaning of an edge, as source -> target."""

    CHILD = 0  #: parent in the syntax tree -> child
    LOOP = 1  #: loop -> a buffer access inside it whose address depends on the loop's variable
    BUFFER = 2  #: a store to a buffer -> a load of the same buffer


class Graphs(Protocol):
    """G program graphs, in memory or in a store."""

    def __len__(self) -> int: ...

    def select(self, graphs: npt.NDArray[np.int64]) -> Graphs:
        """The graphs with the given indices, in the given order; nothing is read."""

    def read(self) -> ProgramGraphs:
        """The graphs in memory.

        Raises:
            InputError: a file of the store is damaged.
        """


@dataclass(frozen=True)
class ProgramGraphs:
    """G program graphs with N nodes and E edges in all.

    Attributes:
        type_names: Names of the node types, normalised across TVM versions.
        node_type: int32[N], index into ``type_names``.
        x: float32[N, len(graphs.values.VALUES)], node features, in the order and on the scales of ``VALUES``.
        edge_index: int32[2, E], source and target; nodes are numbered from 0 within each graph.
        edge_type: int8[E], a :class:`Relation`.
        node_offsets: int64[G + 1]; graph ``g`` has the nodes ``node_offsets[g]:node_offsets[g + 1]``. A graph
            that could not be extracted has none.
        edge_offsets: int64[G + 1]; graph ``g`` has the edges ``edge_offsets[g]:edge_offsets[g + 1]``.
        errors: Index of each graph that could not be extracted -> the reason.
        detail: Which nodes were extracted; a model reads graphs of one detail only.
    """

    type_names: tuple[str, ...]
    node_type: npt.NDArray[np.int32]
    x: npt.NDArray[np.float32]
    edge_index: npt.NDArray[np.int32]
    edge_type: npt.NDArray[np.int8]
    node_offsets: npt.NDArray[np.int64]
    edge_offsets: npt.NDArray[np.int64]
    errors: Mapping[int, str] = field(default_factory=dict)
    detail: Detail = "tree"

    def __len__(self) -> int:
        return len(self.node_offsets) - 1

    @property
    def node_counts(self) -> npt.NDArray[np.int64]:
        """Number of nodes of each graph: int64[G]."""
        return np.diff(self.node_offsets)

    def wrong(self) -> str | None:
        """Name of the first array that is invalid or does not fit the others; None if all are valid.

        Graphs from files are validated: an index out of range would raise an obscure error, and a cycle of parents
        would never end.
        """
        offsets = {"node_offsets": self.node_offsets, "edge_offsets": self.edge_offsets}
        for name, ends in offsets.items():
            if ends.ndim != 1 or ends.dtype.kind != "i" or not len(ends) or ends[0] != 0 or (np.diff(ends) < 0).any():
                return name
        nodes, edges = int(self.node_offsets[-1]), int(self.edge_offsets[-1])
        if len(self.edge_offsets) != len(self.node_offsets):
            return "edge_offsets"
        if self.node_type.shape != (nodes,) or not _below(self.node_type, len(self.type_names)):
            return "node_type"
        if self.x.ndim != 2 or len(self.x) != nodes or not (np.abs(self.x) <= _LARGEST).all():
            return "x"
        if self.edge_type.shape != (edges,) or not _below(self.edge_type, len(Relation)):
            return "edge_type"
        if self.edge_index.shape != (2, edges) or not _below(
            self.edge_index, np.repeat(self.node_counts, np.diff(self.edge_offsets))
        ):
            return "edge_index"
        # A node comes after its parent.
        source, target = self.edge_index[:, self.edge_type == Relation.CHILD]
        return None if (source < target).all() else "edge_index"

    def select(self, graphs: Sequence[int] | npt.NDArray[np.int64]) -> ProgramGraphs:
        """The graphs with the given indices, in the given order.

        Raises:
            IndexError: an index is out of range.
        """
        graphs = np.asarray(graphs, dtype=np.int64)
        nodes, node_offsets = gather(self.node_offsets, graphs)
        edges, edge_offsets = gather(self.edge_offsets, graphs)
        return ProgramGraphs(
            self.type_names,
            self.node_type[nodes],
            self.x[nodes],
            self.edge_index[:, edges],
            self.edge_type[edges],
            node_offsets,
            edge_offsets,
            {new: self.errors[old] for new, old in enumerate(graphs.tolist()) if old in self.errors},
            self.detail,
        )

    def read(self) -> Self:
        """Returns itself, for :class:`Graphs`."""
        return self

    @staticmethod
    def none(type_names: tuple[str, ...], columns: int, detail: Detail) -> ProgramGraphs:
        """An empty set of graphs.

        Args:
            type_names: See the attribute.
            columns: Number of node features.
            detail: See the attribute.
        """
        numbers, offsets = np.zeros(0, np.int32), np.zeros(1, np.int64)
        x, edge_index = np.zeros((0, columns), np.float32), np.zeros((2, 0), np.int32)
        return ProgramGraphs(
            type_names, numbers, x, edge_index, np.zeros(0, np.int8), offsets, offsets.copy(), detail=detail
        )

    @staticmethod
    def concatenate(parts: Sequence[ProgramGraphs]) -> ProgramGraphs:
        """Concatenates graphs; the parts' ``type_names`` may differ.

        Raises:
            InputError: ``parts`` is empty, or the parts have different details.
        """
        if not parts:
            raise InputError("no program graphs to concatenate")
        details = {part.detail for part in parts}
        if len(details) > 1:
            raise InputError(
                "graphs of detail 'tree' and 'statements' cannot be concatenated; extract all with the same detail"
            )
        names: dict[str, int] = {}
        types = []
        for part in parts:
            table = np.array([names.setdefault(name, len(names)) for name in part.type_names] or [0], np.int32)
            types.append(table[part.node_type])
        starts = np.cumsum([0, *(len(part) for part in parts)]).tolist()
        return ProgramGraphs(
            tuple(names),
            np.concatenate(types),
            np.concatenate([part.x for part in parts]),
            np.concatenate([part.edge_index for part in parts], axis=1),
            np.concatenate([part.edge_type for part in parts]),
            join([part.node_offsets for part in parts]),
            join([part.edge_offsets for part in parts]),
            {
                start + graph: error
                for start, part in zip(starts, parts, strict=False)
                for graph, error in part.errors.items()
            },
            details.pop(),
        )


def _below(numbers: npt.NDArray[np.integer], limit: int | npt.NDArray[np.integer]) -> bool:
    """Whether all are integers in [0, limit)."""
    return numbers.dtype.kind in "iu" and bool((numbers >= 0).all() and (numbers < limit).all())


def in_parts(graphs: Graphs) -> Iterator[ProgramGraphs]:
    """Yields the graphs in order, a few thousand at a time.

    Raises:
        InputError: a file of their graph store is damaged.
    """
    if len(graphs) <= _AT_ONCE:
        yield graphs.read()
        return
    for first in range(0, len(graphs), _AT_ONCE):
        yield graphs.select(np.arange(first, min(first + _AT_ONCE, len(graphs)))).read()
