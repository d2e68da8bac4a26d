from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.tpugraphs.models.configured import check_order_of_configs, check_order_of_nodes, fit, graph
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tpugraphs.models.cheb_sage import ChebSage, ChebSageConfig
from tvm_gnn_cost.tpugraphs.ranking.losses import list_mle

KINDS = pytest.mark.parametrize("kind", ["layout", "tile"])


def model(kind: Any, **changes: Any) -> ChebSage:
    torch.manual_seed(0)
    return ChebSage(ChebSageConfig(kind=kind, channels=32, unknown_opcodes=0, **changes))


@KINDS
def test_the_order_of_configurations_does_not_matter(kind: str):
    check_order_of_configs(model(kind).eval(), kind)


@KINDS
def test_the_order_of_nodes_does_not_matter_and_edges_do(kind: str):
    check_order_of_nodes(model(kind).eval(), kind)


@KINDS
def test_it_learns_with_list_mle(kind: str):
    net = model(kind)
    assert fit(net, kind, lambda given, cost: list_mle(net(given), cost)) > 0.9


def test_a_node_sees_as_far_as_its_convolutions_reach():
    # Without pooling over the nodes: what the first node's features change in those of the last, five steps away.
    given = graph(nodes=6)
    edges = torch.cat([given.edge_index, given.edge_index.flip(0)], dim=1)
    for changes, reaches in (({"order": 3, "sage_layers": 2}, False), ({"order": 4, "sage_layers": 2}, True)):
        net = model("layout", **changes).eval()
        x = torch.randn(1, 6, 32, requires_grad=True)
        y = x
        for layer, norm in zip(net.layers, net.norms, strict=True):
            y = y + torch.nn.functional.gelu(norm(layer(y, edges)))
        (gradient,) = torch.autograd.grad(y[0, 5].sum(), x)
        assert bool(gradient[0, 0].any()) == reaches


def test_settings_that_can_not_be_are_named():
    with pytest.raises(InputError, match="order is 0; expected 1 or more"):
        ChebSageConfig(order=0)
