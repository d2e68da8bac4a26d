"""TGraph by its equations, each node of each configuration separately: the reference of the tests and the benchmark."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tvm_gnn_cost.tpugraphs.format import LAYOUT_VALUES, NO_DIMENSION
from tvm_gnn_cost.tpugraphs.models.configured_graph import ConfiguredInput, NodeEncoder
from tvm_gnn_cost.tpugraphs.models.tgraph import CrossConfigAttention, TGraph


class PlainTGraph(TGraph):
    """Has the weights and the scores of :class:`TGraph`."""

    def hidden(self, graph: ConfiguredInput) -> Tensor:
        """The vectors of the configurations, float32[c, channels]."""
        x, edges = _each_encoded(self.encoder, graph), graph.edges_both_ways
        for block in self.blocks:
            x = _block(block, x, edges)
        return self.with_tiles(x.mean(dim=-2), graph)


def _each_encoded(net: NodeEncoder, graph: ConfiguredInput) -> Tensor:
    """float32[c, n, channels] for layouts; float32[1, n, channels] for tiles."""
    permutation = net.layouts(graph.permutation.long() - NO_DIMENSION).flatten(-2)
    x = net.of_node(torch.cat([graph.numbers, net.opcodes(graph.opcode), permutation], dim=-1))[None]
    if net.is_layout:
        absent = net.of_config(net.layouts.weight[0].repeat(LAYOUT_VALUES))
        configured = net.of_config(net.layouts(graph.configs.long() - NO_DIMENSION).flatten(-2)) - absent
        x = (x + absent).expand(len(graph.configs), -1, -1).index_add(1, graph.config_nodes, configured)
    encoded: Tensor = functional.gelu(net.second(functional.gelu(x)))
    return encoded


def _block(block: Any, x: Tensor, edges: Tensor) -> Tensor:
    """Turns float32[c, n, channels] into the same shape."""
    variance, mean = torch.var_mean(x, dim=-2, keepdim=True, correction=0)
    normal = (x - mean) * torch.rsqrt(variance + 1e-5)
    added = _cross(block.cross, block.channels(block.convolution(normal, edges)))
    return x + functional.gelu(added) if block.activates_inside else functional.gelu(x + added)


def _cross(attention: nn.Module, x: Tensor) -> Tensor:
    """The cross attention of float32[c, n, channels]; :class:`TGraph` has the configurations after the nodes."""
    if not isinstance(attention, CrossConfigAttention):
        return x
    return torch.cat([x, x * torch.softmax(x / attention.temperature, dim=0)], dim=-1)
