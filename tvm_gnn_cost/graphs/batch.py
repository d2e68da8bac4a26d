"""Program graphs as the tensors that a model reads."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from tvm_gnn_cost.graphs.program_graph import ProgramGraphs


@dataclass(frozen=True)
class GraphBatch:
    """G graphs with N nodes and E edges in all, joined into one graph.

    Attributes:
        node_type: int64[N], row of the node type's vector.
        values: float32[N, V].
        edge_index: int64[2, E], numbers of nodes in the batch.
        relation: int64[E].
        graph: int64[N], ascending, the graph of each node.
        size: G; graphs without nodes count.
    """

    node_type: Tensor
    values: Tensor
    edge_index: Tensor
    relation: Tensor
    graph: Tensor
    size: int

    def to(self, device: torch.device | str) -> GraphBatch:
        """The same batch on another device."""
        moved = {
            name: getattr(self, name).to(device, non_blocking=True)
            for name in ("node_type", "values", "edge_index", "relation", "graph")
        }
        return replace(self, **moved)


def make_batch(graphs: ProgramGraphs, columns: np.ndarray | None = None) -> GraphBatch:
    """Joins graphs into a batch.

    Args:
        graphs: What to join.
        columns: int64, the columns of ``values`` to keep; all of them if None.
    """
    counts = graphs.node_counts
    shift = np.repeat(graphs.node_offsets[:-1], np.diff(graphs.edge_offsets))
    values = graphs.values if columns is None else graphs.values[:, columns]
    return GraphBatch(
        torch.from_numpy(graphs.node_type.astype(np.int64)),
        torch.from_numpy(np.ascontiguousarray(values)),
        torch.from_numpy(graphs.edges.astype(np.int64) + shift),
        torch.from_numpy(graphs.relation.astype(np.int64)),
        torch.from_numpy(np.repeat(np.arange(len(graphs)), counts)),
        len(graphs),
    )
