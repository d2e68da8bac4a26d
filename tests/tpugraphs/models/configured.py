"""Random configured graphs for the tests of the models that rank configurations."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from tvm_gnn_cost.tpugraphs.models.configured_graph import ConfiguredInput, KernelInput
from tvm_gnn_cost.xla_cpu.kernels import KERNEL_FEATURES


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
        kernels(configs, seed),
    )


def kernels(configs: int, seed: int = 0) -> KernelInput:
    """Four random kernels, of which each configuration has three."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.rand(4, KERNEL_FEATURES, generator=generator)
    of = torch.randint(0, 4, (3 * configs,), generator=generator)
    return KernelInput(features, of, torch.arange(configs).repeat_interleave(3))


def repeated(copies: int = 4, configs: int = 5, seed: int = 0) -> ConfiguredInput:
    """Copies of a graph, one behind the other, their nodes in a random order.

    A copy has nine nodes. Two of them have layouts, with few different values; the ninth is connected to nothing but
    one node that the ninth nodes of all copies share.
    """
    one = graph(nodes=10, configs=configs, seed=seed)
    hub = 9 * copies
    inside = torch.tensor([[1, 2, 3, 4, 5, 6, 7, 7], [0, 1, 2, 2, 3, 4, 6, 5]])
    edges = [inside + 9 * copy for copy in range(copies)]
    edges += [torch.tensor([[9 * copy], [9 * copy - 2]]) for copy in range(1, copies)]
    edges += [torch.tensor([[hub], [9 * copy + 8]]) for copy in range(copies)]
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(hub + 1, generator=generator)  # old number -> new one
    source = torch.argsort(order)
    kind = torch.cat([torch.arange(9).repeat(copies), torch.tensor([9])])[source]
    config_nodes = torch.cat([torch.tensor([9 * copy + 6, 9 * copy + 7]) for copy in range(copies)])
    layouts = torch.randint(-1, 1, (configs, len(config_nodes), 18), generator=generator).to(torch.int8)
    layouts[:, :, 2:] = -1
    return ConfiguredInput(
        one.numbers[kind],
        one.opcode[kind],
        one.permutation[kind],
        order[torch.cat(edges, dim=1)],
        order[config_nodes],
        layouts,
        one.kernels,
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
