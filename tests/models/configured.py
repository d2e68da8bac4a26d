"""Random configured graphs for the tests of the models that rank configurations."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from tvm_gnn_cost.models.configured_graph import ConfiguredInput


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
    """The same graph of six nodes in another order."""
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
    """Trains on the configurations of one graph, which cost what one of their values says; the share of pairs that the
    scores order rightly then."""
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


def hinge(scores: Tensor, cost: Tensor) -> Tensor:
    """Pairwise hinge loss, margin 1."""
    return torch.relu(1 + scores[:, None] - scores[None])[cost[:, None] > cost[None]].mean()
