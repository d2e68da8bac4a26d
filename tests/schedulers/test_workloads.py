from __future__ import annotations

from tvm_gnn_cost.schedulers.workloads import expand_groups


def test_the_training_group_is_the_networks_and_four_operators_of_each_kind() -> None:
    found = expand_groups(["training"], ["vgg", "unet"], ["dense", "softmax"], ["resnet"])
    assert found == (
        *("vgg", "unet", "dense/0", "softmax/0", "dense/1", "softmax/1"),
        *("dense/2", "softmax/2", "dense/3", "softmax/3"),
    )


def test_other_names_stay_as_they_are_and_in_their_place() -> None:
    assert expand_groups(["b/7", "held-out", "nosuch"], ["vgg"], ["dense"], ["x", "y"]) == ("b/7", "x", "y", "nosuch")
    assert expand_groups([], ["vgg"], ["dense"], ["x"]) == ()


def test_the_layers_are_a_group() -> None:
    found = expand_groups(["layers"], [], [], [])
    assert 1100 < len(found) < 1300
    assert found[0] == "pointwise-layer/0"
