"""Mini-batches of program graphs, as in PyTorch Geometric."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tvm_gnn_cost.graphs.embedding import NodeTypeVectors
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs


@dataclass(frozen=True)
class GraphBatch:
    """G graphs with N nodes of T types and E edges in total, as one disconnected graph.

    Attributes:
        type_vectors: float32[T, D], the vector of each node type.
        node_type: int64[N], row in ``type_vectors``.
        x: float32[N, V], node features besides the type.
        edge_index: int64[2, E], source and target, numbered over all nodes of the batch.
        edge_type: int64[E], a :class:`~tvm_gnn_cost.graphs.program_graph.Relation`.
        batch: int64[N], the index of each node's graph, ascending.
        num_graphs: G, including graphs without nodes.
    """

    type_vectors: Tensor
    node_type: Tensor
    x: Tensor
    edge_index: Tensor
    edge_type: Tensor
    batch: Tensor
    num_graphs: int

    def to(self, device: torch.device | str) -> GraphBatch:
        """The batch with every tensor on the given device."""
        tensors = {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}
        moved: dict[str, Any] = {name: value.to(device, non_blocking=True) for name, value in tensors.items()}
        return replace(self, **moved)


def make_batch(
    graphs: ProgramGraphs,
    vectors: NodeTypeVectors,
    columns: npt.NDArray[np.int64] | None = None,
) -> GraphBatch:
    """Collates graphs into a batch.

    Args:
        graphs: The graphs.
        vectors: FastText vectors of node types, including unseen ones.
        columns: int64[V], columns of ``graphs.x`` to keep; None keeps all.
    """
    counts = graphs.node_counts
    shift = np.repeat(graphs.node_offsets[:-1], np.diff(graphs.edge_offsets))
    x = graphs.x if columns is None else graphs.x[:, columns]
    return GraphBatch(
        torch.from_numpy(vectors.matrix(graphs.type_names)),
        torch.from_numpy(graphs.node_type.astype(np.int64)),
        torch.from_numpy(np.ascontiguousarray(x)),
        torch.from_numpy(graphs.edge_index.astype(np.int64) + shift),
        torch.from_numpy(graphs.edge_type.astype(np.int64)),
        torch.from_numpy(np.repeat(np.arange(len(graphs)), counts)),
        len(graphs),
    )
