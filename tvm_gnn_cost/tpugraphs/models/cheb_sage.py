"""Chebyshev spectral convolutions followed by GraphSAGE, to be trained with ListMLE.

ChebNet is by Defferrard et al. 2016 (arXiv 1606.09375), GraphSAGE by Hamilton et al. 2017 (arXiv 1706.02216), and
ListMLE by Xia et al. 2008.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import ChebConv, SAGEConv

from tvm_gnn_cost.tpugraphs.models.configured_graph import ConfigurationModel, ConfiguredInput, EncoderConfig


@dataclass(frozen=True, kw_only=True)
class ChebSageConfig(EncoderConfig):
    """Settings of :class:`ChebSage`.

    Raises:
        InputError: a value is out of range.

    Attributes:
        order: Number of Chebyshev polynomials; a spectral convolution reaches ``order - 1`` steps.
        cheb_layers: Number of spectral convolutions.
        sage_layers: Number of GraphSAGE convolutions after them.
    """

    AT_LEAST_ONE: ClassVar[tuple[str, ...]] = (*EncoderConfig.AT_LEAST_ONE, "order")

    order: int = 3
    cheb_layers: int = 1
    sage_layers: int = 2


class ChebSage(ConfigurationModel):
    """Scores each configuration by itself; a higher score means faster.

    Args:
        config: Its settings.
    """

    def __init__(self, config: ChebSageConfig) -> None:
        width = config.channels
        super().__init__(config, 2 * width)
        layers: list[nn.Module] = [ChebConv(width, width, config.order) for _ in range(config.cheb_layers)]
        layers += [SAGEConv(width, width) for _ in range(config.sage_layers)]
        self.layers = nn.ModuleList(layers)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in layers)
        self.out = nn.Sequential(nn.Linear(2 * width, width), nn.GELU(), nn.Linear(width, 1))

    def pool(self, encoded: Tensor, graph: ConfiguredInput) -> Tensor:
        """Mean and maximum over the nodes, float32[c, 2 channels]."""
        x, edge_index = graph.each_node(encoded), graph.edges_both_ways
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + functional.gelu(norm(layer(x, edge_index)))
        return torch.cat([x.mean(dim=-2), x.amax(dim=-2)], dim=-1)

    def forward(self, graph: ConfiguredInput) -> Tensor:
        """The score of each configuration, float32[c]."""
        scores: Tensor = self.out(self.hidden(graph)).squeeze(-1)
        return scores
