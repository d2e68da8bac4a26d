from __future__ import annotations

import pytest
import torch

from tvm_gnn_cost.tpugraphs.ranking.losses import LOSSES, hinge, list_mle, log_runtime
from tvm_gnn_cost.tpugraphs.settings import MODEL_LOSS


def test_hinge_is_the_mean_over_the_pairs_with_a_faster_configuration():
    scores = torch.tensor([2.0, 0.5, 1.0])
    runtime = torch.tensor([1.0, 2.0, 2.0])
    # 0 before 1: 1 - 1.5, no loss. 0 before 2: 1 - 1. Turned round, 1 + 1.5 and 1 + 1.
    assert hinge(scores, runtime).item() == 0
    assert hinge(-scores, runtime).item() == pytest.approx(4.5 / 2)
    assert hinge(scores, torch.ones(3)).item() == 0


def test_list_mle_is_the_likelihood_of_the_order_from_the_fastest_on():
    scores = torch.tensor([0.3, -1.0, 2.0])
    runtime = torch.tensor([2.0, 3.0, 1.0])
    likelihood = torch.softmax(scores, 0)[2] * torch.softmax(scores[:2], 0)[0]
    assert list_mle(scores, runtime).item() == pytest.approx(-likelihood.log().item() / 3)


def test_runtimes_are_predicted_up_to_a_constant_of_the_graph():
    runtime = torch.tensor([1.0, 2.0, 4.0])
    assert log_runtime(7 - runtime.log(), runtime).item() == pytest.approx(0, abs=1e-10)
    assert log_runtime(-2 * runtime.log(), runtime).item() == pytest.approx(runtime.log().var(correction=0).item())


@pytest.mark.parametrize("name", LOSSES)
def test_a_better_order_has_a_lower_loss(name: str):
    runtime = torch.tensor([1.0, 2.0, 4.0, 8.0])
    good, bad = -runtime.log(), runtime.log()
    if name == "classes":
        good, bad = torch.eye(4).log_softmax(1), torch.eye(4).flip(1).log_softmax(1)
    assert LOSSES[name](good, runtime) < LOSSES[name](bad, runtime)


def test_each_model_has_one_of_them():
    assert set(MODEL_LOSS.values()) <= set(LOSSES)
