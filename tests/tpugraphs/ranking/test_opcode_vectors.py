from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.tpugraphs.prepared import prepared
from tvm_gnn_cost.tpugraphs.format import OPCODES
from tvm_gnn_cost.tpugraphs.ranking.opcode_vectors import opcode_vectors


def test_an_opcode_never_seen_has_a_vector_like_its_name(tmp_path: Path):
    graphs = prepared(tmp_path, "layout", 20)
    unseen = OPCODES["all-reduce-start"]
    related = OPCODES["all-reduce-done"]
    graphs = [replace(graph, opcode=np.where(graph.opcode == unseen, 1, graph.opcode)) for graph in graphs]
    vectors = opcode_vectors(graphs, 16, seed=0)
    near = vectors[1:] @ vectors[unseen]
    assert np.abs(vectors[unseen]).max() > 0
    assert near[related - 1] > np.quantile(np.delete(near, unseen - 1), 0.9)


def test_vectors_have_length_one_and_a_seed_gives_the_same_ones(tmp_path: Path):
    graphs = prepared(tmp_path, "tile", 3)
    # A number that no opcode has counts as unknown.
    graphs[0] = replace(graphs[0], opcode=np.full_like(graphs[0].opcode, 255))
    vectors = opcode_vectors(graphs, 8, seed=1)
    assert (vectors.shape, vectors.dtype) == ((121, 8), np.float32)
    assert not vectors[0].any()
    seen = np.unique(np.concatenate([graph.opcode for graph in graphs[1:]]))
    np.testing.assert_allclose(np.linalg.norm(vectors[seen], axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(opcode_vectors(graphs, 8, seed=1), vectors)
    assert np.abs(opcode_vectors(graphs, 8, seed=2) - vectors).max() > 0.01
