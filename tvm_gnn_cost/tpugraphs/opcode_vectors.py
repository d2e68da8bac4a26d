"""FastText vectors of opcodes: one never seen has a vector too, put together from what its name shares with others.

TGraph's authors name a fixed table of opcodes as a limit of theirs (Maksimov et al. 2024, "Limitations").
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.graphs.embedding import train_vectors
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs, Relation
from tvm_gnn_cost.models.configured_graph import OPCODES as NUMBERS
from tvm_gnn_cost.tpugraphs.opcodes import OPCODES
from tvm_gnn_cost.tpugraphs.prepare import PreparedGraph

_UNKNOWN = "unknown"


def opcode_vectors(graphs: Sequence[PreparedGraph], dim: int, seed: int) -> npt.NDArray[np.float32]:
    """Vectors from random walks over the edges of graphs, float32[121, dim], each of length 1.

    Zeros for 0, unknown, and for a name never seen that shares no three letters with one that was.

    Raises:
        ValueError: the graphs have no node.
        RuntimeError: FastText failed.
    """
    names = (_UNKNOWN, *OPCODES)
    assert len(names) == NUMBERS, "each number has a name"
    opcode = np.concatenate([graph.opcode for graph in graphs])
    edges = np.concatenate([graph.edge_index for graph in graphs], axis=1).astype(np.int32)
    population = ProgramGraphs(
        type_names=names,
        node_type=np.where(opcode < NUMBERS, opcode, 0).astype(np.int32),
        values=np.zeros((len(opcode), 0), np.float32),
        edges=edges,
        relation=np.full(edges.shape[1], Relation.CHILD, np.int8),
        node_offsets=np.cumsum([0, *(len(graph.opcode) for graph in graphs)]),
        edge_offsets=np.cumsum([0, *(graph.edge_index.shape[1] for graph in graphs)]),
    )
    # A fraction of the walks that a syntax tree gets: there are 120 words at most.
    vectors = train_vectors(population, dim=dim, seed=seed, walks=8000).matrix(names)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    vectors[0] = 0
    return vectors
