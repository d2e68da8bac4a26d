"""A gated recurrent unit (Cho et al. 2014, arXiv 1406.1078) that reads a graph's nodes in the module's order.

It predicts the runtime of each configuration and uses no edges.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn

from tvm_gnn_cost.tpugraphs.models.configured_graph import ConfigurationModel, ConfiguredInput, EncoderConfig


@dataclass(frozen=True, kw_only=True)
class GRUConfig(EncoderConfig):
    """Settings of :class:`GRURuntime`.

    Raises:
        InputError: a value is out of range.

    Attributes:
        layers: Number of recurrent layers.
    """

    AT_LEAST_ONE: ClassVar[tuple[str, ...]] = (*EncoderConfig.AT_LEAST_ONE, "layers")

    layers: int = 1


class GRURuntime(ConfigurationModel):
    """Scores configurations by their predicted runtimes; a higher score means faster.

    Args:
        config: Its settings.
    """

    def __init__(self, config: GRUConfig) -> None:
        super().__init__(config, config.channels)
        self.unit = nn.GRU(config.channels, config.channels, config.layers, batch_first=True)
        self.out = nn.Linear(config.channels, 1)

    def pool(self, encoded: Tensor, graph: ConfiguredInput) -> Tensor:
        """The hidden state of the last layer after the last node, float32[c, channels]."""
        _, last = self.unit(graph.each_node(encoded))
        pooled: Tensor = last[-1]
        return pooled

    def forward(self, graph: ConfiguredInput) -> Tensor:
        """Minus the logarithm of each runtime, up to a constant of the graph, float32[c]."""
        scores: Tensor = -self.out(self.hidden(graph)).squeeze(-1)
        return scores
