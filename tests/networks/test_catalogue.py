from __future__ import annotations

import pytest
import torch

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.networks.catalogue import TRAINING, TUNED, drawn_workload, expand_groups, give_weights, workload
from tvm_gnn_cost.networks.layers import LAYERS
from tvm_gnn_cost.networks.operators import KINDS


def test_the_networks_by_their_names() -> None:
    assert list(TUNED) == ["resnet-18", "mobilenet-v1", "mobilenet-v2", "inception-v3"]
    assert len(TRAINING) == 15
    assert set(TUNED) & set(TRAINING) == {"mobilenet-v1"}


@pytest.mark.parametrize("name", ["resnet-18", "perceptron", "dense/3", "conv2d/12"])
def test_a_workload_is_a_module_and_the_shape_of_its_input(name: str) -> None:
    module, shape = workload(name)
    with torch.inference_mode():
        out = module.eval()(torch.zeros(shape))
    assert out.numel()
    again, same = workload(name)
    assert again is not module
    assert same == shape


@pytest.mark.parametrize("name", ["resnet", "", "dense", "dense/", "dense/-1", "dense/x", "dence/1", "resnet-18/1"])
def test_an_unknown_workload_is_named_with_those_that_there_are(name: str) -> None:
    with pytest.raises(InputError) as error:
        workload(name)
    text = str(error.value)
    assert text.startswith(f"unknown workload '{name}'; one of: resnet-18, mobilenet-v1, mobilenet-v2, inception-v3, ")
    listed = text.partition("one of: ")[2].split(", ")
    assert listed == [*dict.fromkeys([*TUNED, *TRAINING]), *(f"{kind}/N" for kind in (*KINDS, *LAYERS))]


@pytest.mark.parametrize("name", sorted(TUNED))
def test_every_convolution_shows_in_the_output(name: str) -> None:
    # Else a schedule that computes something else would pass where a tuned network is compared with PyTorch.
    torch.manual_seed(0)
    module, shape = workload(name)
    give_weights(module)
    module.eval()
    # A part of the image is enough, and Inception has 94 convolutions.
    image = torch.randn(*shape[:2], 96, 96)
    convolutions = [layer for layer in module.modules() if isinstance(layer, torch.nn.Conv2d)]
    with torch.no_grad():
        expected = module(image)
        for layer in convolutions:
            right = layer.weight.clone()
            layer.weight.neg_()
            difference = (module(image) - expected).abs().max() / expected.abs().max()
            layer.weight.copy_(right)
            assert difference > 1e-2, layer


def test_weights_and_inputs_are_the_same_every_time_and_leave_torchs_random_numbers_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    (module, (first,)), (again, (second,)) = drawn_workload("dense/0"), drawn_workload("dense/0")
    assert torch.equal(torch.rand(2), expected)
    assert torch.equal(first, second)
    assert not module.training
    for left, right in zip(module.parameters(), again.parameters(), strict=True):
        assert torch.equal(left, right)


def test_the_training_group_is_the_networks_and_four_operators_of_each_kind() -> None:
    result = expand_groups(["training"], ["vgg", "unet"], ["dense", "softmax"], ["resnet"])
    assert result == (
        *("vgg", "unet", "dense/0", "softmax/0", "dense/1", "softmax/1"),
        *("dense/2", "softmax/2", "dense/3", "softmax/3"),
    )


def test_other_names_stay_as_they_are_and_in_their_place() -> None:
    assert expand_groups(["b/7", "held-out", "nosuch"], ["vgg"], ["dense"], ["x", "y"]) == ("b/7", "x", "y", "nosuch")
    assert expand_groups([], ["vgg"], ["dense"], ["x"]) == ()


def test_the_layers_are_a_group() -> None:
    result = expand_groups(["layers"], [], [], [])
    assert 1100 < len(result) < 1300
    assert result[0] == "pointwise-layer/0"
