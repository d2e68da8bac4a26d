"""TGraph: scores the configurations of an XLA graph against each other (Maksimov et al. 2024, arXiv 2405.16623, 2.3).

The configurations that are scored together are one input, and the network attends across them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import SAGEConv

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tpugraphs.models.configured_graph import ConfigurationModel, ConfiguredInput, EncoderConfig


@dataclass(frozen=True, kw_only=True)
class TGraphConfig(EncoderConfig):
    """The published network; the options cover the paper's ablation and the differences between paper and code.

    Raises:
        InputError: a value is out of range.

    Attributes:
        channels: Width of the network; an even number with cross attention.
        blocks: Graph convolutional blocks.
        squeeze: Factor by which the channel attention narrows the channels.
        channel_attention: Use the paper's ``A_self``; the ablation has a row without it.
        cross_attention: Use the paper's ``A_cross``; the ablation has a row without it. The authors' code turns it off
            on the random collections.
        edges: Use the graph's edges; the ablation has a row without them, where a node sees only itself until pooling.
        aggregation: How a node's neighbours are aggregated: ``mean``, as in the authors' code (it ranked better, see
            benchmarks/LOG.md), or ``sum``, as in the paper's equation 2.
        l2_norm: Normalise each node's features after a convolution, as in equation 2 and not in the code (without it
            ranked better too).
        activation: Apply GELU ``inside`` the residual connection, to what is added (equation 3), or ``behind`` it, to
            the sum (the authors' code).
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
            raise InputError(f"channels is {self.channels}; with cross attention, expected an even number")


class ChannelAttention(nn.Module):
    """Squeeze and excitation of the channels (equation 5; Hu et al. 2018, arXiv 1709.01507)."""

    def __init__(self, channels: int, squeeze: int) -> None:
        super().__init__()
        narrow = max(1, channels // squeeze)
        self.excite = nn.Sequential(nn.Linear(channels, narrow), nn.ReLU(), nn.Linear(narrow, channels), nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        """The weighted channels of ``x``, float32[..., channels]."""
        weighted: Tensor = x * self.excite(x)
        return weighted


class CrossConfigAttention(nn.Module):
    """Weights each configuration against the others, separately for each node and channel (equation 6)."""

    def __init__(self) -> None:
        super().__init__()
        self.temperature = nn.Parameter(torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        """Turns float32[c, ..., channels] into float32[c, ..., 2 channels]: ``x`` and its weighted copy."""
        return torch.cat([x, x * torch.softmax(x / self.temperature, dim=0)], dim=-1)


class _Block(nn.Module):
    """Equations 3 and 4; with cross attention the convolution has half of the channels, which the attention doubles."""

    def __init__(self, config: TGraphConfig) -> None:
        super().__init__()
        out = config.channels // 2 if config.cross_attention else config.channels
        aggregation = {"sum": "add", "mean": "mean"}[config.aggregation]
        self.convolution = SAGEConv(config.channels, out, aggr=aggregation, normalize=config.l2_norm, project=True)
        self.channels = ChannelAttention(out, config.squeeze) if config.channel_attention else nn.Identity()
        self.cross = CrossConfigAttention() if config.cross_attention else nn.Identity()
        self.activates_inside = config.activation == "inside"

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Turns float32[c, n, channels] into the same shape."""
        # Instance normalisation; torch's own refuses a graph of one node.
        variance, mean = torch.var_mean(x, dim=-2, keepdim=True, correction=0)
        normal = (x - mean) * torch.rsqrt(variance + 1e-5)
        added = self.cross(self.channels(self.convolution(normal, edge_index)))
        return x + functional.gelu(added) if self.activates_inside else functional.gelu(x + added)


class TGraph(ConfigurationModel):
    """Scores configurations; a higher score means faster.

    Args:
        config: Its settings.
    """

    def __init__(self, config: TGraphConfig) -> None:
        super().__init__(config, config.channels)
        self.has_edges = config.edges
        self.blocks = nn.ModuleList(_Block(config) for _ in range(config.blocks))
        self.compares = config.cross_attention
        # The blocks see no tiles, and so nothing to compare: tiles are compared after they join.
        late = config.kind == "tile" and config.cross_attention
        self.cross = CrossConfigAttention() if late else nn.Identity()
        self.out = nn.Linear(config.channels * (2 if late else 1), 1)

    def pool(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """The mean over the nodes after the blocks, float32[c, channels]."""
        for block in self.blocks:
            x = block(x, edge_index if self.has_edges else edge_index[:, :0])
        return x.mean(dim=-2)

    def forward(self, graph: ConfiguredInput) -> Tensor:
        """The score of each configuration among the given ones, float32[c]."""
        scores: Tensor = self.out(self.cross(self.hidden(graph))).squeeze(-1)
        return scores
