from __future__ import annotations

from collections import Counter

import pytest

from tvm_gnn_cost.tpugraphs.format.featurize import featurize
from tvm_gnn_cost.xla_cpu.layouts import ConfigurableFunction
from tvm_gnn_cost.xla_cpu.networks import NETWORKS


@pytest.mark.parametrize("name", NETWORKS)
def test_every_network_is_a_graph_with_configurable_nodes(name: str):
    function = ConfigurableFunction(NETWORKS[name].function)
    assert len(function.config_nodes) == len(function.ranks) >= 4
    assert featurize(function.module)["node_feat"].shape[0] >= 50


def test_families_are_split_alike():
    counts = Counter((network.family, network.split) for network in NETWORKS.values())
    assert len({network.family for network in NETWORKS.values()}) == 4
    for family in ("convolutional", "transformer", "mixer", "recurrent"):
        assert [counts[family, split] for split in ("train", "valid", "test")] == [10, 2, 5]
