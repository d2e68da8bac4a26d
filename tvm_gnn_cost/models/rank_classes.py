"""A graph convolutional network that puts each of c configurations in one of c runtime classes.

The model's output is a c x c matrix: row i holds the probabilities that configuration i is the j-th fastest. The
convolutions are those of Kipf and Welling (2017, arXiv 1609.02907).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.nn import GCNConv

from tvm_gnn_cost.models.configured_graph import ConfigurationModel, ConfiguredInput, EncoderConfig


@dataclass(frozen=True, kw_only=True)
class RankClassesConfig(EncoderConfig):
    """What a :class:`RankClasses` is made of.

    Attributes:
        layers: Convolutions.
        waves: Cosines that a class is described by: any number of classes has its vectors.
    """

    AT_LEAST_ONE: ClassVar[tuple[str, ...]] = (*EncoderConfig.AT_LEAST_ONE, "layers", "waves")

    layers: int = 3
    waves: int = 16


class RankClasses(ConfigurationModel):
    """Scores configurations by their class, higher is faster.

    Args:
        config: What to build.
    """

    def __init__(self, config: RankClassesConfig) -> None:
        width = config.channels
        super().__init__(config, width)
        self.waves = config.waves
        self.layers = nn.ModuleList(GCNConv(width, width) for _ in range(config.layers))
        self.classes = nn.Linear(config.waves, width)

    def pool(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """The mean over the nodes."""
        for layer in self.layers:
            x = x + functional.gelu(layer(x, edge_index))
        return x.mean(dim=-2)

    def log_probabilities(self, graph: ConfiguredInput) -> Tensor:
        """float32[c, c]: [i, j] is the logarithm of the probability that i is the j-th fastest; rows add up to 1."""
        hidden = self.hidden(graph)
        place = _places(len(hidden), hidden.device)
        waves = torch.cos(math.pi * place[:, None] * torch.arange(self.waves, device=hidden.device))
        logits = hidden @ self.classes(waves).T / math.sqrt(hidden.shape[-1])
        return torch.log_softmax(logits, dim=1)

    def forward(self, graph: ConfiguredInput) -> Tensor:
        """float32[c]: minus the place that is to be expected, from 0, the fastest, to 1."""
        probabilities = self.log_probabilities(graph).exp()
        return -probabilities @ _places(len(probabilities), probabilities.device)


def class_loss(log_probabilities: Tensor, runtime: Tensor) -> Tensor:
    """Cross entropy of float32[c, c] with the true places; configurations that are equally fast share theirs."""
    faster = (runtime[None] < runtime[:, None]).sum(dim=1)
    equal = (runtime[None] == runtime[:, None]).sum(dim=1)
    place = torch.arange(len(runtime), device=runtime.device)
    shares = (place >= faster[:, None]) & (place < (faster + equal)[:, None])
    target = shares / equal[:, None]
    loss: Tensor = -(target * log_probabilities).sum(dim=1).mean()
    return loss


def _places(count: int, device: torch.device) -> Tensor:
    """float32[count], evenly from 0 to 1."""
    return torch.linspace(0, 1, count, device=device) if count > 1 else torch.zeros(1, device=device)
