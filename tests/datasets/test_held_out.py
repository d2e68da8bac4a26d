from __future__ import annotations

import pytest

from tvm_gnn_cost.datasets.held_out import TEST_NETWORKS, networks_named, networks_to_test
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.networks.catalogue import TRAINING

TENSET = ["resnet_18[(1,3,224,224)]", "resnet_18[(4,3,224,224)]", "resnet_184[(1,3,224,224)]", "bert"]


def test_a_name_stands_for_all_its_shapes_and_for_no_other_network() -> None:
    assert networks_named("resnet_18", TENSET) == TENSET[:2]
    assert networks_named(TENSET[1], TENSET) == [TENSET[1]]
    assert networks_named("resnet", TENSET) == []
    assert networks_named("bert", iter(TENSET)) == ["bert"]


def test_the_test_networks_are_those_that_occur() -> None:
    assert networks_to_test(TENSET) == TENSET[:2]
    assert networks_to_test({"inception-v3", "vit", "mobilenet-v2"}) == ["mobilenet-v2", "inception-v3"]
    assert networks_to_test(["mobilenet", "mobilenet-v2"]) == ["mobilenet-v2", "mobilenet"]


def test_asked_networks_come_in_their_order_and_once() -> None:
    assert networks_to_test(TENSET, ["bert", "resnet_18", "bert"]) == ["bert", *TENSET[:2]]


def test_an_unknown_network_is_named_with_those_that_there_are() -> None:
    with pytest.raises(InputError, match="network 'vit' does not occur in the data; it has: a, b"):
        networks_to_test(["b", "a"], ["a", "vit"])
    with pytest.raises(InputError, match="'vit' does not occur in the data; it has: none"):
        networks_to_test([], ["vit"])


def test_data_without_a_test_network_is_refused() -> None:
    with pytest.raises(InputError, match=r"none of the usual test networks \(resnet-18, .*\) .* networks: bert, vit$"):
        networks_to_test(["vit", "bert"])
    with pytest.raises(InputError, match="choose among its networks: none"):
        networks_to_test([])


def test_no_test_network_trains() -> None:
    assert set(TEST_NETWORKS) == {"meta-schedule", "auto-scheduler"}
    assert not set(TEST_NETWORKS["meta-schedule"]) & set(TRAINING)
