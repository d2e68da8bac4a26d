from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.tpugraphs.models.configured import fit, graph, renumbered
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tpugraphs.losses import hinge
from tvm_gnn_cost.tpugraphs.models.tgraph import CrossConfigAttention, TGraph, TGraphConfig

SMALL = TGraphConfig(channels=32, unknown_opcodes=0)


def model(kind: str = "layout", **changes) -> TGraph:
    torch.manual_seed(0)
    return TGraph(replace(SMALL, kind=kind, **changes)).eval()


@pytest.mark.parametrize("kind", ["layout", "tile"])
@pytest.mark.parametrize("changes", [{}, {"aggregation": "sum", "l2_norm": True}, {"activation": "behind"}])
def test_neither_order_matters(kind: str, changes: dict):
    net, given = model(kind, **changes), graph(kind)
    scores = net(given)
    assert scores.shape == (5,)
    order = torch.tensor([3, 0, 4, 1, 2])
    torch.testing.assert_close(net(replace(given, configs=given.configs[order])), scores[order])
    torch.testing.assert_close(net(renumbered(given)), scores)


@pytest.mark.parametrize("kind", ["layout", "tile"])
def test_configurations_see_each_other_by_cross_attention_alone(kind: str):
    given = graph(kind)
    few = replace(given, configs=given.configs[:2])
    without = model(kind, cross_attention=False)
    torch.testing.assert_close(without(few), without(given)[:2])
    with_it = model(kind)
    assert not torch.allclose(with_it(few), with_it(given)[:2], atol=1e-5)


def test_edges_matter_unless_they_are_left_out():
    given = graph()
    rewired = replace(given, edge_index=given.edge_index[:, :2])
    assert not torch.allclose(model()(rewired), model()(given), atol=1e-6)
    torch.testing.assert_close(model(edges=False)(rewired), model(edges=False)(given))


@pytest.mark.parametrize("changes", [{"channel_attention": False}, {"activation": "behind"}, {"l2_norm": True}])
def test_each_option_changes_the_scores(changes: dict):
    given = graph()
    assert not torch.allclose(model(**changes)(given), model()(given), atol=1e-6)


def test_a_graph_of_one_node():
    for kind in ("layout", "tile"):
        assert torch.isfinite(model(kind)(graph(kind, nodes=1))).all()


@pytest.mark.parametrize("kind", ["layout", "tile"])
def test_it_learns_what_a_configuration_costs(kind: str):
    net = model(kind).train()
    assert fit(net, kind, lambda given, cost: hinge(net(given), cost)) > 0.95


def test_cross_attention_is_a_softmax_over_the_configurations():
    x = torch.tensor([[1.0, 0.0], [0.0, 0.0]])
    weight = torch.softmax(x, dim=0)
    torch.testing.assert_close(CrossConfigAttention()(x), torch.cat([x, x * weight], dim=1))


def test_settings_that_can_not_be_are_named():
    with pytest.raises(InputError, match="channels is 7; with cross attention, expected an even number"):
        TGraphConfig(channels=7)
    assert TGraphConfig(channels=7, cross_attention=False).channels == 7
    with pytest.raises(InputError, match="blocks is 0; expected 1 or more"):
        TGraphConfig(blocks=0)
    with pytest.raises(InputError, match="aggregation is max; expected one of: mean, sum"):
        TGraphConfig(aggregation="max")
