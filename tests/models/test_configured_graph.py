from __future__ import annotations

from dataclasses import replace

import torch

from tests.models.configured import graph
from tvm_gnn_cost.models.configured_graph import EncoderConfig, NodeEncoder


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
    torch.testing.assert_close(net(given), torch.nn.functional.gelu(net.second(first)))


def test_tiles_are_no_node_s():
    assert encoder(kind="tile")(graph("tile")).shape == (1, 6, 16)


def test_an_opcode_never_seen_is_the_unknown_one():
    net, given = encoder(), graph()
    net.opcodes.is_known[50] = False
    unknown = net(replace(given, opcode=torch.zeros_like(given.opcode)))
    for number in (50, 121, 255):
        torch.testing.assert_close(net(replace(given, opcode=torch.full_like(given.opcode, number))), unknown)
    assert not torch.allclose(net(replace(given, opcode=torch.full_like(given.opcode, 51))), unknown, atol=1e-5)


def test_some_opcodes_are_hidden_in_training_so_that_the_unknown_one_learns():
    net, given = encoder(unknown_opcodes=0.5).train(), graph(nodes=200)
    used = replace(given, opcode=torch.full_like(given.opcode, 7))
    net(used).sum().backward()
    learned = net.opcodes.table.weight.grad.abs().sum(dim=1) > 0
    assert torch.nonzero(learned).flatten().tolist() == [0, 7]
