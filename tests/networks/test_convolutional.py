from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from tvm_gnn_cost.networks import convolutional
from tvm_gnn_cost.networks.catalogue import TRAINING, TUNED
from tvm_gnn_cost.networks.convolutional import Concat, ConvNormAct, Residual

#: Parameters of the published networks, weights and biases; torchvision's are the same.
PUBLISHED = {
    "resnet_18": 11_689_512,
    "resnet_50": 25_557_032,
    "resnext_50": 25_028_904,
    "mobilenet_v1": 4_231_976,
    "mobilenet_v2": 3_504_872,
    "squeezenet": 1_235_496,
    # Without its auxiliary head.
    "inception_v3": 23_834_568,
}
NETWORKS = {
    name: (make, shape)
    for name, (make, shape) in (TUNED | TRAINING).items()
    if make.__module__ == convolutional.__name__
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_network_has_as_many_parameters_as_published(name: str) -> None:
    with torch.device("meta"):
        network: nn.Module = getattr(convolutional, name)()
    assert sum(parameter.numel() for parameter in network.parameters()) == PUBLISHED[name]


@pytest.mark.parametrize("name", NETWORKS)
def test_a_network_maps_its_input_to_classes_or_an_image(name: str) -> None:
    make, shape = NETWORKS[name]
    with torch.device("meta"), torch.inference_mode():
        out = make().eval()(torch.empty(shape))
    images = {"unet": (1, 5, 96, 96), "dcgan": (1, 3, 64, 64)}
    assert tuple(out.shape) == images.get(name, (1, 1000))


def test_convolution_norm_and_activation() -> None:
    torch.manual_seed(0)
    x = torch.randn(1, 4, 9, 9)
    for kernel in (1, 3, 5, (1, 7)):
        # The size stays, as long as nothing else is asked for.
        assert ConvNormAct(4, 6, kernel)(x).shape == (1, 6, 9, 9)
    assert ConvNormAct(4, 6, 3, dilation=2)(x).shape == (1, 6, 9, 9)
    assert ConvNormAct(4, 6, 3, stride=2)(x).shape == (1, 6, 5, 5)
    assert ConvNormAct(4, 6, 3, padding=0)(x).shape == (1, 6, 7, 7)
    assert ConvNormAct(4, 6, 3)(x).min() == 0
    assert ConvNormAct(4, 6, 3, act=None)(x).min() < 0
    grouped = ConvNormAct(4, 4, 3, groups=4)
    assert grouped[0].weight.shape == (4, 1, 3, 3)
    assert grouped[0].bias is None


def test_residual_and_concat() -> None:
    x = torch.tensor([[[[1.0]], [[-3.0]]]])
    negate: Callable[[], nn.Module] = lambda: nn.Conv2d(2, 2, 1, bias=False)  # noqa: E731
    branch = negate()
    nn.init.constant_(branch.weight, 0)
    assert Residual(branch)(x).flatten().tolist() == [1.0, 0.0]
    assert Residual(branch, act=False)(x).flatten().tolist() == [1.0, -3.0]
    assert Residual(nn.Identity(), nn.Identity(), act=False)(x).flatten().tolist() == [2.0, -6.0]
    assert Concat(nn.Identity(), nn.ReLU())(x).flatten().tolist() == [1.0, -3.0, 1.0, 0.0]


def test_a_densely_connected_block_keeps_its_input() -> None:
    torch.manual_seed(0)
    layers = [layer for layer in convolutional.densenet_small() if type(layer).__name__ == "Dense"]
    assert len(layers) == 9
    x = torch.randn(1, 64, 4, 4)
    out = layers[0](x)
    assert out.shape == (1, 96, 4, 4)
    torch.testing.assert_close(out[:, :64], x)
