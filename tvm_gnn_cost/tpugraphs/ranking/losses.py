"""Losses of scores against runtimes, for one graph at a time; a higher score means faster."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from tvm_gnn_cost.models import losses
from tvm_gnn_cost.tpugraphs.models.rank_classes import class_loss


def hinge(scores: Tensor, runtime: Tensor) -> Tensor:
    """Pairwise hinge loss, margin 1: the mean over the pairs in which one is faster, as in TGraph's code."""
    return losses.hinge(scores, runtime[:, None] < runtime[None])


def list_mle(scores: Tensor, runtime: Tensor) -> Tensor:
    """ListMLE (Xia et al. 2008) of all configurations as one list."""
    return losses.list_mle(scores, -runtime, torch.zeros(len(runtime), dtype=torch.long, device=runtime.device))


def log_runtime(scores: Tensor, runtime: Tensor) -> Tensor:
    """Mean squared error of minus the logarithm of the runtime, up to a constant of the graph."""
    target = -runtime.log()
    loss: Tensor = ((scores - scores.mean()) - (target - target.mean())).square().mean()
    return loss


#: Each takes float32[c] scores and float32[c] runtimes; ``classes`` takes RankClasses' float32[c, c] matrix instead of
#: scores.
LOSSES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "hinge": hinge,
    "listmle": list_mle,
    "runtime": log_runtime,
    "classes": class_loss,
}
