"""Random configured graphs for the tests of the models that rank configurations."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from tvm_gnn_cost.tpugraphs.models.configured_graph import ConfiguredInput


def graph(kind: str = "layout", nodes: int = 6, configs: int = 5, seed: int = 0) -> ConfiguredInput:
    """A chain of nodes, every other one of them with a layout."""
    generator = torch.Generator().manual_seed(seed)

    def integers(low: int, high: int, *shape: int) -> Tensor:
        return torch.randint(low, high, shape, generator=generator)

    config_nodes = torch.arange(0, nodes, 2) if kind == "layout" else torch.zeros(0, dtype=torch.long)
    layouts = integers(-1, 6, configs, len(config_nodes), 18).to(torch.int8)
    tiles = integers(0, 500, configs, 24).float()
    return ConfiguredInput(
        torch.randn(nodes, 134, generator=generator),
        integers(0, 121, nodes),
        integers(-1, 6, nodes, 6).to(torch.int8),
        torch.stack([torch.arange(1, nodes), torch.arange(nodes - 1)]),
        config_nodes,
        layouts if kind == "layout" else tiles,
    )


def renumbered(given: ConfiguredInput) -> ConfiguredInput:
    """The same graph of six nodes with its nodes in another order."""
    nodes = torch.tensor([5, 3, 1, 0, 2, 4])  # new number -> old one
    number = torch.argsort(nodes)
    return replace(
        given,
        numbers=given.numbers[nodes],
        opcode=given.opcode[nodes],
        permutation=given.permutation[nodes],
        edge_index=number[given.edge_index],
        config_nodes=number[given.config_nodes],
    )


def fit(net: nn.Module, kind: str, loss_of, steps: int = 150) -> float:
    """Trains on one graph, whose configurations cost what one of their values says, and returns the share of pairs that
    the scores then order rightly."""
    given = graph(kind, configs=40)
    cost = given.configs[:, 1, 3].float() if kind == "layout" else given.configs[:, 5] / 100
    optimizer = torch.optim.AdamW(net.parameters(), 3e-3)
    for _ in range(steps):
        loss = loss_of(given, cost)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    scores = net.eval()(given)
    slower = cost[:, None] > cost[None]
    return float((scores[:, None] < scores[None])[slower].float().mean())


def check_order_of_configs(net: nn.Module, kind: str) -> None:
    """Each configuration has the same score wherever it stands, and a graph may have one node and one configuration."""
    given = graph(kind)
    scores = net(given)
    assert scores.shape == (5,)
    order = torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(net(replace(given, configs=given.configs[order])), scores[order])
    assert torch.isfinite(net(graph(kind, nodes=1, configs=1))).all()


def check_order_of_nodes(net: nn.Module, kind: str) -> None:
    """The scores do not depend on the order of the nodes, but on the edges."""
    given = graph(kind)
    torch.testing.assert_close(net(renumbered(given)), net(given))
    rewired = replace(given, edge_index=given.edge_index[:, :2])
    assert not torch.allclose(net(rewired), net(given), atol=1e-6)
