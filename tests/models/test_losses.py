from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.models.losses import (
    LOSSES,
    combine,
    huber,
    latency_error,
    list_mle,
    mse,
    pairwise_error,
    pairwise_hinge,
)

RANKING = ("hinge", "list-mle")


def example() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(12, generator=generator)
    targets = torch.rand(12, generator=generator)
    return scores, targets, torch.tensor([0] * 5 + [3] * 7)


def test_errors_are_torchs_own_on_the_predicted_throughput() -> None:
    scores, targets, task = example()
    p = torch.sigmoid(scores)
    assert torch.allclose(mse(scores, targets, task), ((p - targets) ** 2).mean())
    # All errors are below 1, where Huber's loss is half the square.
    assert torch.allclose(huber(scores, targets, task), 0.5 * ((p - targets) ** 2).mean())


def test_hinge_by_hand() -> None:
    scores, targets, task = torch.tensor([0.0, 2.0, 5.0]), torch.tensor([1.0, 0.5, 0.2]), torch.tensor([0, 0, 1])
    # One pair: the first should be a margin above the second and lies 2 below.
    assert pairwise_hinge(scores, targets, task).item() == pytest.approx(3.0)


def test_pairwise_error_counts_pairs_of_one_task_and_ties_as_wrong() -> None:
    scores, targets = torch.tensor([3.0, 1.0, 1.0, 9.0]), torch.tensor([1.0, 0.5, 0.2, 0.1])
    # Right: the first above the second and the third. Wrong: the tie. The last one is of another task.
    assert pairwise_error(scores, targets, torch.tensor([0, 0, 0, 1])).item() == pytest.approx(1 / 3)
    assert pairwise_error(scores, targets, torch.arange(4)).item() == 0


def test_latency_error_by_hand() -> None:
    # 2 ms predicted as 2 ms, 1 ms as e ms (half a unit: a square), 1 ms as e^6 ms (3 units: linear), and a failure.
    predicted = torch.tensor([math.log(2), 1.0, 6.0, 5.0])
    seconds = torch.tensor([2e-3, 1e-3, 1e-3, math.inf])
    assert latency_error(predicted, seconds).item() == pytest.approx((0 + 0.125 + 2.5) / 3, rel=1e-4)
    assert latency_error(predicted[3:], seconds[3:]).item() == 0


def test_list_mle_is_the_plackett_luce_likelihood() -> None:
    scores, targets, task = example()
    expected = 0.0
    for number in (0, 3):
        rows = [i for i in range(12) if task[i] == number]
        rows.sort(key=lambda i: -targets[i].item())
        for position, i in enumerate(rows):
            rest = sum(math.exp(scores[j].item()) for j in rows[position:])
            expected -= math.log(math.exp(scores[i].item()) / rest)
    assert list_mle(scores, targets, task).item() == pytest.approx(expected / 12, rel=1e-5)


@pytest.mark.parametrize("name", RANKING)
def test_ranking_losses_never_compare_across_tasks(name: str) -> None:
    scores, targets, task = example()
    shifted = scores + 10.0 * (task == 3)
    assert torch.allclose(LOSSES[name](scores, targets, task), LOSSES[name](shifted, targets, task), atol=1e-4)


@pytest.mark.parametrize("name", LOSSES)
def test_descending_a_loss_finds_the_order(name: str) -> None:
    scores, targets, task = example()
    scores = scores.clone().requires_grad_()
    optimizer = torch.optim.Adam([scores], 0.1)
    for _ in range(200):
        optimizer.zero_grad()
        LOSSES[name](scores, targets, task).backward()
        optimizer.step()
    for number in (0, 3):
        rows = task == number
        # top1 cares for the best program alone; the others order everything.
        assert scores[rows].argmax() == targets[rows].argmax()
        if name != "top1":
            assert torch.equal(scores[rows].argsort(), targets[rows].argsort())


def test_losses_can_be_joined_and_unknown_ones_are_named() -> None:
    scores, targets, task = example()
    both = combine("mse+hinge")(scores, targets, task)
    assert torch.allclose(both, mse(scores, targets, task) + pairwise_hinge(scores, targets, task))
    with pytest.raises(InputError, match="unknown loss 'hings'"):
        combine("mse+hings")
