"""TGraph: ranks the configurations of an XLA graph against each other (Maksimov et al. 2024, arXiv 2405.16623, 2.3).

The configurations that are scored together are one input: besides the nodes, the network attends across them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import SAGEConv

from tvm_gnn_cost.models.configured_graph import ConfigurationModel, ConfiguredInput, EncoderConfig


@dataclass(frozen=True, kw_only=True)
class TGraphConfig(EncoderConfig):
    """The published network; what its ablation leaves out, and what its authors' code is known to do otherwise.

    Attributes:
        channels: Width of the network, even.
        blocks: Graph convolutional blocks.
        squeeze: By how much the channel attention narrows the channels.
        channel_attention: The paper's ``A_self``; without it the ablation's row.
        cross_attention: The paper's ``A_cross``; likewise. Known to be off on the random collections.
        edges: Likewise; without edges a node sees nothing but itself until the pooling.
        aggregation: Of a node's neighbours: ``mean`` (the code; it ranked better, see benchmarks/LOG.md) or ``sum``
            (the paper's equation 2).
        l2_norm: Normalise each node's features behind a convolution (equation 2; not in the code, likewise).
        activation: ``inside`` the residual connection, what is added (equation 3), or ``behind`` it, the sum (the
            code).
    """

    AT_LEAST_ONE: ClassVar[tuple[str, ...]] = (*EncoderConfig.AT_LEAST_ONE, "blocks", "squeeze")

    channels: int = 256
    blocks: int = 2
    squeeze: int = 8
    channel_attention: bool = True
    cross_attention: bool = True
    edges: bool = True
    aggregation: Literal["mean", "sum"] = "mean"
    l2_norm: bool = False
    activation: Literal["inside", "behind"] = "inside"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.cross_attention and self.channels % 2:
            raise ValueError(f"channels is {self.channels}; with cross attention, expected an even number")


class ChannelAttention(nn.Module):
    """Squeeze and excitation of the channels (equation 5)."""

    def __init__(self, channels: int, squeeze: int) -> None:
        super().__init__()
        narrow = max(1, channels // squeeze)
        self.excite = nn.Sequential(nn.Linear(channels, narrow), nn.ReLU(), nn.Linear(narrow, channels), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        """Of the shape of ``x``, [..., channels]."""
        weighed: Tensor = x * self.excite(x)
        return weighed


class CrossConfigAttention(nn.Module):
    """Weighs each configuration against the others, node by node and channel by channel (equation 6)."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        """[configurations, ..., 2 channels]: ``x`` and what it is beside the others."""
        return torch.cat([x, x * torch.softmax(x / self.temperature, dim=0)], dim=-1)


class _Block(nn.Module):
    """Equations 3 and 4. The convolution fills half of the channels where the attention fills the other half."""

    def __init__(self, config: TGraphConfig) -> None:
        super().__init__()
        out = config.channels // 2 if config.cross_attention else config.channels
        aggregation = {"sum": "add", "mean": "mean"}[config.aggregation]
        self.convolution = SAGEConv(config.channels, out, aggr=aggregation, normalize=config.l2_norm, project=True)
        self.channels = ChannelAttention(out, config.squeeze) if config.channel_attention else nn.Identity()
        self.cross = CrossConfigAttention() if config.cross_attention else nn.Identity()
        self.activates_inside = config.activation == "inside"

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """[configurations, nodes, channels], as ``x``."""
        # Instance normalisation, of a graph of one node too, which torch's refuses.
        variance, mean = torch.var_mean(x, dim=-2, keepdim=True, correction=0)
        normal = (x - mean) * torch.rsqrt(variance + 1e-5)
        added = self.cross(self.channels(self.convolution(normal, edge_index)))
        return x + functional.gelu(added) if self.activates_inside else functional.gelu(x + added)


class TGraph(ConfigurationModel):
    """Scores configurations, higher is faster.

    Args:
        config: What to build.
    """

    def __init__(self, config: TGraphConfig) -> None:
        super().__init__(config, config.channels)
        self.has_edges = config.edges
        self.blocks = nn.ModuleList(_Block(config) for _ in range(config.blocks))
        self.compares = config.cross_attention
        # Of tiles the blocks see one graph and nothing to compare: they are compared where they join.
        late = config.kind == "tile" and config.cross_attention
        self.cross = CrossConfigAttention() if late else nn.Identity()
        self.out = nn.Linear(config.channels * (2 if late else 1), 1)

    def pool(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """The mean over the nodes behind the blocks."""
        for block in self.blocks:
            x = block(x, edge_index if self.has_edges else edge_index[:, :0])
        return x.mean(dim=-2)

    def forward(self, graph: ConfiguredInput) -> Tensor:
        """float32[c], the score of each configuration among the given ones."""
        scores: Tensor = self.out(self.cross(self.hidden(graph))).squeeze(-1)
        return scores
