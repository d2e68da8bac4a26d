"""A gated recurrent unit (Cho et al. 2014, arXiv 1406.1078) over a graph's nodes in the module's order.

It predicts the runtime of a configuration and knows no edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from tvm_gnn_cost.models.configured_graph import ConfigurationModel, ConfiguredInput, EncoderConfig


@dataclass(frozen=True, kw_only=True)
class GRUConfig(EncoderConfig):
    """What a :class:`GRURuntime` is made of.

    Attributes:
        layers: Recurrent layers.
    """

    AT_LEAST_ONE: ClassVar[tuple[str, ...]] = (*EncoderConfig.AT_LEAST_ONE, "layers")

    layers: int = 1


class GRURuntime(ConfigurationModel):
    """Scores configurations by their predicted runtime, higher is faster.

    Args:
        config: What to build.
    """

    def __init__(self, config: GRUConfig) -> None:
        super().__init__(config, config.channels)
        self.unit = nn.GRU(config.channels, config.channels, config.layers, batch_first=True)
        self.out = nn.Linear(config.channels, 1)

    def pool(self, x: Tensor, edge_index: Tensor) -> Tensor:  # noqa: ARG002
        """What the unit holds behind the last node."""
        _, last = self.unit(x)
        pooled: Tensor = last[-1]
        return pooled

    def forward(self, graph: ConfiguredInput) -> Tensor:
        """float32[c]: minus the logarithm of the runtime, up to a constant of the graph."""
        scores: Tensor = -self.out(self.hidden(graph)).squeeze(-1)
        return scores
