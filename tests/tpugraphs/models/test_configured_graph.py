from __future__ import annotations

from dataclasses import fields, replace

import pytest
import torch

from tests.tpugraphs.models.configured import graph, repeated
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tpugraphs.models.configured_graph import EncoderConfig, NodeEncoder, OpcodeVectors


def encoder(**changes) -> NodeEncoder:
    torch.manual_seed(0)
    return NodeEncoder(EncoderConfig(channels=16, **changes)).eval()


def test_it_is_the_perceptron_of_all_features_side_by_side():
    net, given = encoder(), graph()
    layouts = torch.full((5, 6, 18), -1, dtype=torch.int8)
    layouts[:, given.config_nodes] = given.configs
    static = [given.numbers, net.opcodes(given.opcode), net.layouts(given.permutation.long() + 1).flatten(-2)]
    features = torch.cat([torch.cat(static, -1).expand(5, -1, -1), net.layouts(layouts.long() + 1).flatten(-2)], -1)
    weight = torch.cat([net.of_node.weight, net.of_config.weight], dim=1)
    first = torch.nn.functional.gelu(features @ weight.T + net.of_node.bias)
    torch.testing.assert_close(given.each_node(net(given)), torch.nn.functional.gelu(net.second(first)))


def test_tiles_are_no_node_s():
    given = graph("tile")
    assert given.each_node(encoder(kind="tile")(given)).shape == (1, 6, 16)


def test_equal_nodes_with_equal_layouts_are_encoded_once():
    given = repeated(copies=4)
    encoded = encoder()(given)
    # Seven kinds of nodes have no layout, one stands alone, and two have the four layouts of two values.
    assert len(encoded) <= 7 + 1 + 2 * 4
    assert given.each_node(encoded).shape == (5, 37, 16)


def test_an_opcode_never_seen_is_the_unknown_one():
    net, given = encoder(), graph()
    net.opcodes.is_known[50] = False

    def encoded(number: int) -> torch.Tensor:
        with_opcode = replace(given, opcode=torch.full_like(given.opcode, number))
        return with_opcode.each_node(net(with_opcode))

    for number in (50, 121, 255):
        torch.testing.assert_close(encoded(number), encoded(0))
    assert not torch.allclose(encoded(51), encoded(0), atol=1e-5)


def test_vectors_of_opcodes_are_given_and_not_learned():
    vectors = OpcodeVectors(3)
    vectors.vectors[:] = torch.arange(121)[:, None]
    assert vectors(torch.tensor([0, 7, 120, 121, 255, -1]))[:, 0].tolist() == [0, 7, 120, 0, 0, 0]
    assert not list(vectors.parameters())
    assert isinstance(encoder(opcodes="fasttext").opcodes, OpcodeVectors)


def test_a_graph_moves_as_a_whole():
    moved = graph().to(torch.device("meta"))
    tensors = [getattr(moved, one.name) for one in fields(moved)]
    devices = {str(tensor.device) for tensor in tensors if isinstance(tensor, torch.Tensor)}
    devices |= {str(tensor.device) for tensor in vars(moved.kernels).values()}
    assert devices == {"meta"}
    assert moved.configs.shape == graph().configs.shape


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"channels": 0}, "channels is 0; expected 1 or more"),
        ({"kind": "tiles"}, "kind is tiles; expected one of: layout, tile"),
        ({"opcodes": "word2vec"}, "opcodes is word2vec; expected one of: table, fasttext"),
        ({"unknown_opcodes": -0.1}, "unknown_opcodes is -0.1; expected a share below 1"),
    ],
)
def test_values_that_can_not_be_are_named(changes: dict, message: str):
    with pytest.raises(InputError, match=message):
        EncoderConfig(**changes)
