from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.tpugraphs.models.configured import check_order_of_configs, fit, graph, renumbered
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tpugraphs.models.gru import GRUConfig, GRURuntime

KINDS = pytest.mark.parametrize("kind", ["layout", "tile"])


def model(kind: Any, **changes: Any) -> GRURuntime:
    torch.manual_seed(0)
    return GRURuntime(GRUConfig(kind=kind, channels=32, unknown_opcodes=0, **changes))


@KINDS
def test_the_order_of_configurations_does_not_matter(kind: str):
    check_order_of_configs(model(kind).eval(), kind)


def test_the_recurrent_unit_reads_nodes_in_their_order():
    net, given = model("layout").eval(), graph()
    assert not torch.allclose(net(renumbered(given)), net(given), atol=1e-6)


def test_it_uses_no_edges():
    net, given = model("layout", layers=2).eval(), graph()
    torch.testing.assert_close(net(replace(given, edge_index=given.edge_index[:, :0])), net(given))


@KINDS
def test_it_learns_the_runtime(kind: str):
    net = model(kind)
    assert fit(net, kind, lambda given, cost: ((net(given) + cost) ** 2).mean(), steps=400) > 0.9


def test_settings_that_can_not_be_are_named():
    with pytest.raises(InputError, match="layers is 0; expected 1 or more"):
        GRUConfig(layers=0)
