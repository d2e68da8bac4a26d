from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.tpugraphs.models.configured import check_order_of_configs, check_order_of_nodes, fit, graph
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tpugraphs.models.rank_classes import RankClasses, RankClassesConfig, class_loss

KINDS = pytest.mark.parametrize("kind", ["layout", "tile"])


def model(kind: Any) -> RankClasses:
    torch.manual_seed(0)
    return RankClasses(RankClassesConfig(kind=kind, channels=32, unknown_opcodes=0))


@KINDS
def test_the_order_of_configurations_does_not_matter(kind: str):
    check_order_of_configs(model(kind).eval(), kind)


@KINDS
def test_the_order_of_nodes_does_not_matter_and_edges_do(kind: str):
    check_order_of_nodes(model(kind).eval(), kind)


def test_classes_are_a_matrix_whose_rows_add_up_to_one():
    net = model("layout").eval()
    matrix = net.log_probabilities(graph(configs=7)).exp()
    assert matrix.shape == (7, 7)
    torch.testing.assert_close(matrix.sum(dim=1), torch.ones(7))
    torch.testing.assert_close(net(graph(configs=7)), -(matrix @ torch.linspace(0, 1, 7)))


def test_equally_fast_configurations_share_their_classes():
    runtime = torch.tensor([3.0, 1.0, 3.0])
    sure = torch.tensor([[1e-9, 0.5, 0.5], [1, 1e-9, 1e-9], [1e-9, 0.5, 0.5]]).log()
    assert class_loss(sure, runtime).item() == pytest.approx(2 / 3 * torch.tensor(2.0).log().item(), rel=1e-4)


@KINDS
def test_it_learns_its_classes(kind: str):
    net = model(kind)
    assert fit(net, kind, lambda given, cost: class_loss(net.log_probabilities(given), cost)) > 0.9


def test_settings_that_can_not_be_are_named():
    with pytest.raises(InputError, match="waves is 0; expected 1 or more"):
        RankClassesConfig(waves=0)
    with pytest.raises(InputError, match="layers is 0; expected 1 or more"):
        RankClassesConfig(layers=0)
