"""Losses of scores against runtimes, for one graph at a time; a higher score means faster."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from tvm_gnn_cost.models import losses
from tvm_gnn_cost.tpugraphs.models.rank_classes import class_loss


def hinge(scores: Tensor, runtime: Tensor) -> Tensor:
    """Pairwise hinge loss, margin 1: the mean over the pairs in which one is faster, as in TGraph's code."""
    return losses.hinge(scores, _faster(runtime))


def hinge_sum(scores: Tensor, runtime: Tensor) -> Tensor:
    """The sum over these pairs (TGraph, Maksimov et al. 2024, equation 8).

    With thousands of pairs it is so large that every step's gradient is clipped to the same length.
    """
    return losses.hinge_sum(scores, _faster(runtime))


def hinge_top(scores: Tensor, runtime: Tensor) -> Tensor:
    """The weighted mean over these pairs: a pair weighs one over the place of its faster configuration, from 1."""
    faster = _faster(runtime)
    place = 1 + faster.sum(dim=0)
    return losses.hinge(scores, faster / place[:, None])


def list_mle(scores: Tensor, runtime: Tensor) -> Tensor:
    """ListMLE (Xia et al. 2008) of all configurations as one list."""
    return losses.list_mle(scores, -runtime, torch.zeros(len(runtime), dtype=torch.long, device=runtime.device))


def log_runtime(scores: Tensor, runtime: Tensor) -> Tensor:
    """Mean squared error of minus the logarithm of the runtime, up to a constant of the graph."""
    target = -runtime.log()
    loss: Tensor = ((scores - scores.mean()) - (target - target.mean())).square().mean()
    return loss


def _faster(runtime: Tensor) -> Tensor:
    """bool[c, c]: whether the first configuration of the pair is faster than the second."""
    return runtime[:, None] < runtime[None]


#: Each takes float32[c] scores and float32[c] runtimes; ``classes`` takes RankClasses' float32[c, c] matrix instead of
#: scores.
LOSSES: Mapping[str, Callable[[Tensor, Tensor], Tensor]] = {
    "hinge": hinge,
    "hinge-sum": hinge_sum,
    "hinge-top": hinge_top,
    "listmle": list_mle,
    "runtime": log_runtime,
    "classes": class_loss,
}
