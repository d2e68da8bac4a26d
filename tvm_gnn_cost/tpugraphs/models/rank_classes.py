"""A graph convolutional network that classifies each of c configurations by its rank among them.

Its output is a c x c matrix: row i holds the probabilities that configuration i is the j-th fastest. The convolutions
are those of Kipf and Welling (2017, arXiv 1609.02907).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GCNConv

from tvm_gnn_cost.tpugraphs.models.configured_graph import ConfigurationModel, ConfiguredInput, EncoderConfig


@dataclass(frozen=True, kw_only=True)
class RankClassesConfig(EncoderConfig):
    """Settings of :class:`RankClasses`.

    Raises:
        InputError: a value is out of range.

    Attributes:
        layers: Number of convolutions.
        waves: Number of cosines of its rank that describe a class, so that any number of classes can be told apart.
    """

    AT_LEAST_ONE: ClassVar[tuple[str, ...]] = (*EncoderConfig.AT_LEAST_ONE, "layers", "waves")

    layers: int = 3
    waves: int = 16


class RankClasses(ConfigurationModel):
    """Scores configurations by their expected rank; a higher score means faster.

    Args:
        config: Its settings.
    """

    def __init__(self, config: RankClassesConfig) -> None:
        width = config.channels
        super().__init__(config, width)
        self.waves = config.waves
        self.layers = nn.ModuleList(GCNConv(width, width) for _ in range(config.layers))
        self.classes = nn.Linear(config.waves, width)

    def pool(self, encoded: Tensor, graph: ConfiguredInput) -> Tensor:
        """The mean over the nodes, float32[c, channels]."""
        x, edge_index = graph.each_node(encoded), graph.edges_both_ways
        for layer in self.layers:
            x = x + functional.gelu(layer(x, edge_index))
        return x.mean(dim=-2)

    def log_probabilities(self, graph: ConfiguredInput) -> Tensor:
        """float32[c, c]: [i, j] is the logarithm of the probability that configuration i is the j-th fastest."""
        hidden = self.hidden(graph)
        ranks = _ranks(len(hidden), hidden.device)
        waves = torch.cos(math.pi * ranks[:, None] * torch.arange(self.waves, device=hidden.device))
        logits = hidden @ self.classes(waves).T / math.sqrt(hidden.shape[-1])
        return torch.log_softmax(logits, dim=1)

    def forward(self, graph: ConfiguredInput) -> Tensor:
        """Minus the expected rank of each configuration, from 0, the fastest, to 1, the slowest; float32[c]."""
        probabilities = self.log_probabilities(graph).exp()
        return -probabilities @ _ranks(len(probabilities), probabilities.device)


def class_loss(log_probabilities: Tensor, runtime: Tensor) -> Tensor:
    """Cross entropy between predicted and true ranks; equally fast configurations share their ranks.

    Args:
        log_probabilities: float32[c, c] of :meth:`RankClasses.log_probabilities`.
        runtime: float32[c], in any unit.
    """
    faster = (runtime[None] < runtime[:, None]).sum(dim=1)
    equal = (runtime[None] == runtime[:, None]).sum(dim=1)
    rank = torch.arange(len(runtime), device=runtime.device)
    shares = (rank >= faster[:, None]) & (rank < (faster + equal)[:, None])
    target = shares / equal[:, None]
    loss: Tensor = -(target * log_probabilities).sum(dim=1).mean()
    return loss


def _ranks(count: int, device: torch.device) -> Tensor:
    """float32[count], evenly spaced from 0 to 1."""
    return torch.linspace(0, 1, count, device=device) if count > 1 else torch.zeros(1, device=device)
