from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
import torch

from tests import synthetic
from tvm_gnn_cost.graphs.batch import make_batch
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs


def test_graphs_are_joined_into_one() -> None:
    graphs = synthetic.graphs(3)
    batch = make_batch(graphs, synthetic.vectors())
    assert batch.num_graphs == 3
    assert batch.batch.tolist() == np.repeat(np.arange(3), graphs.node_counts).tolist()
    for i in range(3):
        graph = graphs.select([i])
        nodes = batch.batch == i
        assert batch.node_type[nodes].tolist() == graph.node_type.tolist()
        np.testing.assert_array_equal(batch.x[nodes].numpy(), graph.x)
        inside = nodes[batch.edge_index[0]]
        # An edge never leaves its graph, and nodes are numbered over the whole batch.
        assert torch.equal(inside, nodes[batch.edge_index[1]])
        first = int(graphs.node_offsets[i])
        assert (batch.edge_index[:, inside] - first).tolist() == graph.edge_index.tolist()
        assert batch.edge_type[inside].tolist() == graph.edge_type.tolist()


def test_types_and_shapes() -> None:
    batch = make_batch(synthetic.graphs(3), synthetic.vectors(dim=7), np.array([4, 1]))
    nodes, edges = len(batch.node_type), batch.edge_index.shape[1]
    assert (batch.type_vectors.shape, batch.type_vectors.dtype) == ((3, 7), torch.float32)
    assert (batch.x.shape, batch.x.dtype) == ((nodes, 2), torch.float32)
    for tensor, shape in (
        (batch.node_type, (nodes,)),
        (batch.edge_index, (2, edges)),
        (batch.edge_type, (edges,)),
        (batch.batch, (nodes,)),
    ):
        assert (tensor.shape, tensor.dtype) == (shape, torch.int64)


def test_the_given_columns_are_kept_in_their_order() -> None:
    graphs = synthetic.graphs(2)
    batch = make_batch(graphs, synthetic.vectors(), np.array([4, 1]))
    np.testing.assert_array_equal(batch.x.numpy(), graphs.x[:, [4, 1]])


def test_a_batch_carries_the_vectors_of_its_node_types() -> None:
    vectors = synthetic.vectors()
    graphs = replace(synthetic.graphs(2), type_names=("BufferLoad", "NeverSeen", "For"))
    batch = make_batch(graphs, vectors)
    np.testing.assert_array_equal(batch.type_vectors.numpy(), vectors.matrix(graphs.type_names))
    assert batch.type_vectors[1].any()


def test_graphs_without_nodes_count() -> None:
    graphs = synthetic.graphs(2)
    empty = ProgramGraphs(
        (), np.zeros(0, np.int32), graphs.x[:0], graphs.edge_index[:, :0], graphs.edge_type[:0],
        np.zeros(2, np.int64), np.zeros(2, np.int64), {0: "no PrimFunc"}, "statements",
    )  # fmt: skip
    batch = make_batch(ProgramGraphs.concatenate([graphs.select([0]), empty, graphs.select([1])]), synthetic.vectors())
    assert batch.num_graphs == 3
    assert set(batch.batch.tolist()) == {0, 2}
    alone = make_batch(empty, synthetic.vectors())
    assert (alone.num_graphs, len(alone.node_type), alone.edge_index.shape) == (1, 0, (2, 0))


def test_a_batch_does_not_share_memory_with_the_graphs() -> None:
    graphs = synthetic.graphs(2)
    batch = make_batch(graphs, synthetic.vectors(), np.array([0]))
    before = graphs.x.copy()
    batch.x.add_(1)
    np.testing.assert_array_equal(graphs.x, before)


def test_every_tensor_moves() -> None:
    batch = make_batch(synthetic.graphs(2), synthetic.vectors()).to("meta")
    tensors = [getattr(batch, field.name) for field in fields(batch) if field.name != "num_graphs"]
    assert {tensor.device.type for tensor in tensors} == {"meta"}
    assert batch.num_graphs == 2
