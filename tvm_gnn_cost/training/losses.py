"""Losses: scores of programs against their normalised throughput; ranking losses compare within a task only.

Every loss takes ``scores`` float32[P] (logits: see ``models.topk_gnn``), ``targets`` float32[P] (the task's lowest
latency over the program's, in [0, 1]) and ``task`` int64[P], and returns a scalar.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

#: Pairs of programs closer than this share say little: it is the usual noise of a measurement (``benchmarks/data``).
NOISE = 0.03

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]


def huber(scores: Tensor, targets: Tensor, _task: Tensor) -> Tensor:
    """Huber loss of the predicted throughput, delta 1."""
    return functional.huber_loss(torch.sigmoid(scores), targets)


def mse(scores: Tensor, targets: Tensor, _task: Tensor) -> Tensor:
    """Mean squared error of the predicted throughput."""
    return functional.mse_loss(torch.sigmoid(scores), targets)


def pairwise_hinge(scores: Tensor, targets: Tensor, task: Tensor) -> Tensor:
    """Hinge loss, margin 1, over the pairs of programs of one task in which the first is faster by :data:`NOISE`."""
    better = _better(targets * (1 - NOISE), targets, task)
    margin = scores[:, None] - scores[None, :]
    loss: Tensor = (functional.relu(1 - margin) * better).sum() / better.sum().clamp(min=1)
    return loss


def list_mle(scores: Tensor, targets: Tensor, task: Tensor) -> Tensor:
    """Negative log likelihood of the true order under Plackett-Luce, a program (Xia et al. 2008, ListMLE)."""
    # Sorted by task, then from the fastest to the slowest program; a program competes with those after it.
    order = torch.argsort(targets, descending=True, stable=True)
    order = order[torch.argsort(task[order], stable=True)]
    scores, task = scores[order], task[order]
    rest = (task[:, None] == task[None, :]) & torch.ones_like(task[:, None] == task[None, :]).triu()
    log_sum: Tensor = torch.logsumexp(scores[None, :].expand_as(rest).masked_fill(~rest, -torch.inf), dim=1)
    loss: Tensor = (log_sum - scores).mean()
    return loss


def lambda_rank(scores: Tensor, targets: Tensor, task: Tensor) -> Tensor:
    """Logistic loss over pairs, each weighted by the change of NDCG if the two were swapped (Burges et al. 2006).

    The gain of a program is ``2 ** (4 * target) - 1``: the fastest programs decide.
    """
    same = task[:, None] == task[None, :]
    better = _better(targets, targets, task)
    with torch.no_grad():
        rank = ((scores[None, :] > scores[:, None]) & same).sum(dim=1) + 1
        gain = 2 ** (4 * targets) - 1
        discount = 1 / torch.log2(rank + 1.0)
        ideal_rank = ((targets[None, :] > targets[:, None]) & same).sum(dim=1) + 1
        ideal = torch.zeros_like(gain).scatter_add(0, _dense(task), gain / torch.log2(ideal_rank + 1.0))
        ideal = ideal[_dense(task)].clamp(min=1e-6)
        weight = (gain[:, None] - gain[None, :]).abs() * (discount[:, None] - discount[None, :]).abs() / ideal[:, None]
    pairs = functional.softplus(scores[None, :] - scores[:, None]) * better * weight
    loss: Tensor = pairs.sum() / torch.unique(task).numel()
    return loss


def expected_throughput(scores: Tensor, targets: Tensor, task: Tensor) -> Tensor:
    """Minus the throughput to expect of a program that is drawn by the softmax of its task's scores, a task.

    A smooth form of the top-1 score: it asks that the first one is good, and not which of the good ones is first.
    """
    number = _dense(task)
    weight = torch.softmax(scores.masked_fill(number[None, :] != torch.unique(number)[:, None], -torch.inf), dim=1)
    loss: Tensor = -(weight @ targets).mean()
    return loss


def latency_error(log_latency: Tensor, latency: Tensor) -> Tensor:
    """Huber loss of predicted logarithms of milliseconds, float32[P], against float32[P] seconds, infinite: no matter.

    Halved logarithms: the latencies of usual tasks are spread by two of these units, and the loss turns linear at one.
    """
    ran = latency.isfinite()
    loss: Tensor = functional.huber_loss(log_latency[ran] / 2, (1e3 * latency[ran]).log() / 2, reduction="sum")
    return loss / ran.sum().clamp(min=1)


def pairwise_error(scores: Tensor, targets: Tensor, task: Tensor) -> Tensor:
    """Share of the pairs of one task that are ordered wrongly, ties among them."""
    better = _better(targets, targets, task)
    error: Tensor = (better * (scores[:, None] <= scores[None, :])).sum() / better.sum().clamp(min=1)
    return error


def _better(ones: Tensor, others: Tensor, task: Tensor) -> Tensor:
    """float[P, P]: 1 where the first program is of the same task and its ``ones`` is above the second's ``others``."""
    return ((ones[:, None] > others[None, :]) & (task[:, None] == task[None, :])).to(ones.dtype)


def _dense(task: Tensor) -> Tensor:
    """The tasks renumbered from 0."""
    number: Tensor = torch.unique(task, return_inverse=True)[1]
    return number


LOSSES: dict[str, Loss] = {
    "huber": huber,
    "mse": mse,
    "hinge": pairwise_hinge,
    "list-mle": list_mle,
    "lambda-rank": lambda_rank,
    "top1": expected_throughput,
}


def combine(name: str) -> Loss:
    """A loss by name; ``a+b`` adds them.

    Raises:
        ValueError: there is no such loss.
    """
    parts = name.split("+")
    unknown = [part for part in parts if part not in LOSSES]
    if unknown:
        raise ValueError(f"unknown loss '{unknown[0]}'; one of {', '.join(LOSSES)}, or several joined by '+'")

    def total(scores: Tensor, targets: Tensor, task: Tensor) -> Tensor:
        return torch.stack([LOSSES[part](scores, targets, task) for part in parts]).sum()

    return total
