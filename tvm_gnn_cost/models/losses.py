"""Losses of scores against relative throughput; ranking losses compare programs of the same task only.

Every loss takes ``scores`` float32[P] (logits, see ``models.topk_gnn``), ``targets`` float32[P] (the task's lowest
latency over the program's, in [0, 1]) and ``task`` int64[P], and returns a scalar.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from tvm_gnn_cost.errors import InputError

#: Relative noise of a usual measurement (``benchmarks/data``); smaller differences say little.
NOISE = 0.03

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def huber(scores: Tensor, targets: Tensor, _task: Tensor) -> Tensor:
    """Huber loss with delta 1 of the predicted throughput."""
    return functional.huber_loss(torch.sigmoid(scores), targets)


def mse(scores: Tensor, targets: Tensor, _task: Tensor) -> Tensor:
    """Mean squared error of the predicted throughput."""
    return functional.mse_loss(torch.sigmoid(scores), targets)


def pairwise_hinge(scores: Tensor, targets: Tensor, task: Tensor) -> Tensor:
    """Mean hinge loss with margin 1 over the pairs of a task whose throughputs differ by more than :data:`NOISE`."""
    return hinge(scores, _better(targets * (1 - NOISE), targets, task))


def hinge(scores: Tensor, better: Tensor) -> Tensor:
    """Mean hinge loss with margin 1 over pairs of programs.

    Args:
        scores: float32[P].
        better: float32[P, P], 1 where the first program should score higher than the second, else 0.
    """
    return hinge_sum(scores, better) / better.sum().clamp(min=1)


def hinge_sum(scores: Tensor, better: Tensor) -> Tensor:
    """Sum of the hinge loss over pairs, see :func:`hinge`."""
    loss: Tensor = (functional.relu(1 - (scores[:, None] - scores[None, :])) * better).sum()
    return loss


def list_mle(scores: Tensor, targets: Tensor, task: Tensor) -> Tensor:
    """Negative log likelihood per program of the true order in the Plackett-Luce model (ListMLE, Xia et al. 2008)."""
    # Sort by task, then from the fastest to the slowest program; each competes with those after it.
    order = torch.argsort(targets, descending=True, stable=True)
    order = order[torch.argsort(task[order], stable=True)]
    scores, task = scores[order], task[order]
    rest = (task[:, None] == task[None, :]) & torch.ones_like(task[:, None] == task[None, :]).triu()
    log_sum: Tensor = torch.logsumexp(scores[None, :].expand_as(rest).masked_fill(~rest, -torch.inf), dim=1)
    loss: Tensor = (log_sum - scores).mean()
    return loss


def expected_throughput(scores: Tensor, targets: Tensor, task: Tensor) -> Tensor:
    """Negative expected throughput of a program drawn with the softmax of its task's scores, averaged over tasks.

    This is a smooth top-1 score: it rewards a good program in the first place, whichever of the good ones it is.
    """
    number = _dense(task)
    weight = torch.softmax(scores.masked_fill(number[None, :] != torch.unique(number)[:, None], -torch.inf), dim=1)
    loss: Tensor = -(weight @ targets).mean()
    return loss


def latency_error(log_latency: Tensor, latency: Tensor) -> Tensor:
    """Huber loss of the predicted latency; failed programs (infinite latency) are ignored.

    It compares halved natural logarithms: latencies of usual tasks spread over two such units, and the loss becomes
    linear at a difference of one.

    Args:
        log_latency: float32[P], predicted natural logarithm of the latency in milliseconds.
        latency: float32[P], measured latency in seconds.
    """
    ran = latency.isfinite()
    loss: Tensor = functional.huber_loss(log_latency[ran] / 2, (1e3 * latency[ran]).log() / 2, reduction="sum")
    return loss / ran.sum().clamp(min=1)


def pairwise_error(scores: Tensor, targets: Tensor, task: Tensor) -> Tensor:
    """Share of the pairs of a task that the scores order wrongly; a tie of scores counts as wrong."""
    better = _better(targets, targets, task)
    error: Tensor = (better * (scores[:, None] <= scores[None, :])).sum() / better.sum().clamp(min=1)
    return error


def _better(ones: Tensor, others: Tensor, task: Tensor) -> Tensor:
    """1 where two programs are of one task and the first's ``ones`` exceeds the second's ``others``: float[P, P]."""
    return ((ones[:, None] > others[None, :]) & (task[:, None] == task[None, :])).to(ones.dtype)


def _dense(task: Tensor) -> Tensor:
    """The task numbers renumbered from 0 without gaps: int64[P]."""
    number: Tensor = torch.unique(task, return_inverse=True)[1]
    return number


LOSSES: dict[str, Loss] = {
    "huber": huber,
    "mse": mse,
    "hinge": pairwise_hinge,
    "list-mle": list_mle,
    "top1": expected_throughput,
}


def combine(name: str) -> Loss:
    """The loss with a name in :data:`LOSSES`, or the sum of several joined by ``+``.

    >>> import torch
    >>> loss = combine("mse+huber")
    >>> round(loss(torch.zeros(2), torch.tensor([0.5, 1.0]), torch.zeros(2).long()).item(), 4)
    0.1875

    Raises:
        InputError: there is no such loss.
    """
    parts = name.split("+")
    unknown = [part for part in parts if part not in LOSSES]
    if unknown:
        raise InputError(f"unknown loss '{unknown[0]}'; one of {', '.join(LOSSES)}, or several joined by '+'")

    def total(scores: Tensor, targets: Tensor, task: Tensor) -> Tensor:
        return torch.stack([LOSSES[part](scores, targets, task) for part in parts]).sum()

    return total
