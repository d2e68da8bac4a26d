"""Adds up the costs of the fused kernels of a configuration, whichever compiler makes them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tpugraphs.format import KERNEL_FEATURES, WORK, WORK_UNIT
from tvm_gnn_cost.tpugraphs.models.configured_graph import ConfiguredInput, ModelConfig, RankingModel
from tvm_gnn_cost.tpugraphs.settings import check_values

#: A configuration costs at least this share of the graph's most expensive kernel, even without a kernel.
_LEAST = 1e-6


@dataclass(frozen=True, kw_only=True)
class KernelCostsConfig(ModelConfig):
    """Settings of :class:`KernelCosts`.

    Raises:
        InputError: a value is out of range.

    Attributes:
        channels: Width of the network that estimates a kernel's cost.
        dropout: Dropout rate.
    """

    channels: int = 64
    dropout: float = 0.1

    def __post_init__(self) -> None:
        check_values(self, {"channels": 1})
        if self.kind != "layout":
            raise InputError("kind is tile; the model kernel-costs ranks only layouts")
        if not 0 <= self.dropout < 1:
            raise InputError(f"dropout is {self.dropout}; expected a share below 1")


class KernelCosts(RankingModel):
    """Scores configurations by the sum of their kernels' costs; a higher score means faster.

    A small network sees one kernel at a time, and no graph.

    Args:
        config: Its settings.
    """

    def __init__(self, config: KernelCostsConfig) -> None:
        super().__init__()
        width = config.channels
        self.cost = nn.Sequential(
            *(nn.Linear(KERNEL_FEATURES, width), nn.GELU(), nn.Dropout(config.dropout)),
            *(nn.Linear(width, width), nn.GELU(), nn.Dropout(config.dropout), nn.Linear(width, 1)),
        )
        self.weight = nn.Parameter(torch.tensor(3.0))

    def forward(self, graph: ConfiguredInput) -> Tensor:
        """Minus the logarithm of each configuration's cost, float32[c], up to a constant and a factor."""
        kernels = graph.kernels
        # The network corrects the work of a kernel, so that it need not learn that twice as much takes twice as long.
        log_cost = self.cost(kernels.features).squeeze(-1) + kernels.features[:, WORK] * (WORK_UNIT * math.log(2))
        total = torch.zeros(len(graph.configs), device=log_cost.device)
        if len(log_cost):
            cost = (log_cost - log_cost.max().detach()).exp()
            total = total.index_add(0, kernels.config, cost[kernels.of])
        scores: Tensor = -self.weight * total.clamp(min=_LEAST).log()
        return scores
