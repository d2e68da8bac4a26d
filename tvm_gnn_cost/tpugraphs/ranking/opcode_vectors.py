"""FastText vectors of opcodes, which give an opcode that training never saw a vector like those of similar names.

TGraph's authors name their fixed table of opcodes as a limitation (Maksimov et al. 2024, "Limitations").
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.graphs.embedding import train_vectors
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs, Relation
from tvm_gnn_cost.graphs.ragged import offsets_of
from tvm_gnn_cost.tpugraphs.format import OPCODE_COUNT, OPCODES
from tvm_gnn_cost.tpugraphs.preparation.prepared_graph import PreparedGraph

_UNKNOWN = "unknown"


def opcode_vectors(graphs: Sequence[PreparedGraph], dim: int, seed: int) -> npt.NDArray[np.float32]:
    """Vectors trained on random walks along the edges of graphs (FastText, Bojanowski et al. 2017, arXiv 1607.04606).

    Args:
        graphs: Training graphs.
        dim: Length of a vector.
        seed: Seeds the walks and the training.

    Returns:
        float32[121, dim], each row of length 1; zeros for 0, unknown, and for an opcode outside the training graphs
        whose name shares no three letters with theirs.

    Raises:
        InputError: the graphs have no node.
        WorkError: FastText failed.
    """
    names = (_UNKNOWN, *OPCODES)
    opcode = np.concatenate([graph.opcode for graph in graphs])
    edge_index = np.concatenate([graph.edge_index for graph in graphs], axis=1).astype(np.int32)
    population = ProgramGraphs(
        type_names=names,
        node_type=np.where(opcode < OPCODE_COUNT, opcode, 0).astype(np.int32),
        x=np.zeros((len(opcode), 0), np.float32),
        edge_index=edge_index,
        edge_type=np.full(edge_index.shape[1], Relation.CHILD, np.int8),
        node_offsets=offsets_of([len(graph.opcode) for graph in graphs]),
        edge_offsets=offsets_of([graph.edge_index.shape[1] for graph in graphs]),
    )
    # A fraction of the walks that syntax trees get: there are only 121 words.
    vectors = train_vectors(population, dim=dim, seed=seed, walks=8000).matrix(names)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    vectors[0] = 0
    return vectors
