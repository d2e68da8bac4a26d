"""The models of configurations beside TGraph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.models.configured import fit, graph, renumbered
from tvm_gnn_cost.models.cheb_sage import ChebSage, ChebSageConfig
from tvm_gnn_cost.models.gru import GRUConfig, GRURuntime
from tvm_gnn_cost.models.rank_classes import RankClasses, RankClassesConfig, class_loss
from tvm_gnn_cost.training.losses import list_mle

KINDS = pytest.mark.parametrize("kind", ["layout", "tile"])
SMALL: dict[str, Any] = {"channels": 32, "unknown_opcodes": 0}


def cheb_sage(kind: Any) -> ChebSage:
    torch.manual_seed(0)
    return ChebSage(ChebSageConfig(kind=kind, **SMALL))


def rank_classes(kind: Any) -> RankClasses:
    torch.manual_seed(0)
    return RankClasses(RankClassesConfig(kind=kind, **SMALL))


def gru(kind: Any) -> GRURuntime:
    torch.manual_seed(0)
    return GRURuntime(GRUConfig(kind=kind, **SMALL))


@KINDS
@pytest.mark.parametrize("make", [cheb_sage, rank_classes, gru])
def test_the_order_of_configurations_does_not_matter(make: Any, kind: str):
    net, given = make(kind).eval(), graph(kind)
    scores = net(given)
    assert scores.shape == (5,)
    order = torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(net(replace(given, configs=given.configs[order])), scores[order])
    assert torch.isfinite(net(graph(kind, nodes=1, configs=1))).all()


@KINDS
@pytest.mark.parametrize("make", [cheb_sage, rank_classes])
def test_the_order_of_nodes_does_not_matter_and_edges_do(make: Any, kind: str):
    net, given = make(kind).eval(), graph(kind)
    torch.testing.assert_close(net(renumbered(given)), net(given))
    rewired = replace(given, edge_index=given.edge_index[:, :2])
    assert not torch.allclose(net(rewired), net(given), atol=1e-6)


def test_the_recurrent_unit_reads_nodes_in_their_order():
    net, given = gru("layout").eval(), graph()
    assert not torch.allclose(net(renumbered(given)), net(given), atol=1e-6)


def test_classes_are_a_matrix_whose_rows_add_up_to_one():
    net = rank_classes("layout").eval()
    matrix = net.log_probabilities(graph(configs=7)).exp()
    assert matrix.shape == (7, 7)
    torch.testing.assert_close(matrix.sum(dim=1), torch.ones(7))
    torch.testing.assert_close(net(graph(configs=7)), -(matrix @ torch.linspace(0, 1, 7)))


def test_equally_fast_configurations_share_their_classes():
    runtime = torch.tensor([3.0, 1.0, 3.0])
    sure = torch.tensor([[1e-9, 0.5, 0.5], [1, 1e-9, 1e-9], [1e-9, 0.5, 0.5]]).log()
    assert class_loss(sure, runtime).item() == pytest.approx(2 / 3 * torch.tensor(2.0).log().item(), rel=1e-4)


@KINDS
def test_each_learns_with_its_own_loss(kind: str):
    cheb = cheb_sage(kind)
    assert fit(cheb, kind, lambda given, cost: list_mle(cheb(given), -cost, torch.zeros(40))) > 0.9
    classes = rank_classes(kind)
    assert fit(classes, kind, lambda given, cost: class_loss(classes.log_probabilities(given), cost)) > 0.9
    runtime = gru(kind)
    assert fit(runtime, kind, lambda given, cost: ((runtime(given) + cost) ** 2).mean(), steps=400) > 0.9
