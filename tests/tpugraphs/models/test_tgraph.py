from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from benchmarks.tpugraphs_plain import PlainTGraph
from tests.tpugraphs.models.configured import fit, graph, renumbered, repeated
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.evaluation.metrics import kendall_tau
from tvm_gnn_cost.tpugraphs.models import tgraph
from tvm_gnn_cost.tpugraphs.models.tgraph import CrossConfigAttention, TGraph, TGraphConfig
from tvm_gnn_cost.tpugraphs.ranking.losses import hinge

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


@pytest.mark.parametrize(
    ("rows", "kept", "plain"), [(8192, 2**16, 2**14), (30, 2**16, 2**14), (30, 2**16, 0), (30, 60, 0), (1, 0, 0)]
)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"aggregation": "sum", "l2_norm": True, "activation": "behind"},
        {"cross_attention": False, "channel_attention": False},
        {"blocks": 3},
        {"blocks": 1},
        {"edges": False},
    ],
)
def test_scores_and_gradients_are_those_of_the_equations(
    rows: int, kept: int, plain: int, changes: dict, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tgraph, "_ROWS", rows)
    monkeypatch.setattr(tgraph, "_KEPT_ROWS", kept)
    monkeypatch.setattr(tgraph, "_TRAINED_ROWS", kept)
    monkeypatch.setattr(tgraph, "_PLAIN_ROWS", plain)
    monkeypatch.setattr(tgraph, "_HAS_BFLOAT16", False)
    for given in (repeated(), graph(), graph("tile"), graph(nodes=1)):
        kind = "layout" if given.configs.ndim == 3 else "tile"
        net, by_equations = model(kind, **changes), PlainTGraph(replace(SMALL, kind=kind, **changes))
        by_equations.load_state_dict(net.state_dict())
        weights = torch.randn(5)
        found, expected = net(given), by_equations(given)
        (found @ weights).backward()
        (expected @ weights).backward()
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        for (name, one), other in zip(net.named_parameters(), by_equations.parameters(), strict=True):
            largest = 1e-3 * other.grad.abs().max().item() + 1e-5
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-3, atol=largest, msg=name)
        with torch.inference_mode():
            torch.testing.assert_close(net(given), expected.detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("has_gradients", [True, False])
def test_bfloat16_keeps_the_order(has_gradients: bool, monkeypatch: pytest.MonkeyPatch):
    net, given = model(), graph(configs=40)
    found = []
    for uses in (True, False):
        monkeypatch.setattr(tgraph, "_HAS_BFLOAT16", uses)
        with torch.set_grad_enabled(has_gradients):
            found.append(net(given).detach())
    half, exact = found
    assert not torch.equal(half, exact)
    assert (half - exact).abs().max() < 0.05 * exact.std()
    assert kendall_tau(half.numpy(), exact.numpy()) > 0.95


def test_gradients_of_bfloat16_point_where_those_of_float32_do(monkeypatch: pytest.MonkeyPatch):
    gradients = []
    for uses in (True, False):
        monkeypatch.setattr(tgraph, "_HAS_BFLOAT16", uses)
        net, given = model(), graph(configs=40)
        net(given)[:20].sum().backward()
        gradients.append(torch.cat([one.grad.flatten() for one in net.parameters()]))
    assert torch.cosine_similarity(*gradients, dim=0) > 0.999


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
