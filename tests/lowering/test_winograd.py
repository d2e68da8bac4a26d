from __future__ import annotations

import doctest

import numpy as np
import pytest
import torch
import tvm
from torch import nn
from tvm import te

from tests.schedulers.meta_schedule.convolutions import channels_last, output, to_relax
from tvm_gnn_cost.lowering import winograd as module
from tvm_gnn_cost.lowering.constants import rearrange_constants
from tvm_gnn_cost.lowering.winograd import transformed, use_winograd, winograd


def test_its_examples_hold() -> None:
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize(
    ("shape", "padding"),
    [((1, 8, 8, 16), (1, 1, 1, 1)), ((2, 9, 14, 3), (0, 0, 0, 0)), ((1, 28, 26, 8), (2, 0, 1, 3))],
)
def test_it_computes_a_convolution(size: int, shape: tuple[int, ...], padding: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    image = rng.standard_normal(shape).astype(np.float32)
    weights = rng.standard_normal((3, 3, shape[3], 5)).astype(np.float32)
    ready = transformed(weights, size)
    data, kernel = te.placeholder(shape, "float32", "data"), te.placeholder(ready.shape, "float32", "kernel")
    program = tvm.compile(te.create_prim_func([data, kernel, winograd(data, kernel, size, padding)]), target="llvm")
    top, left, bottom, right = padding
    padded = np.pad(image, ((0, 0), (top, bottom), (left, right), (0, 0)))
    expected = torch.nn.functional.conv2d(
        torch.from_numpy(padded).permute(0, 3, 1, 2), torch.from_numpy(weights).permute(3, 2, 0, 1)
    ).permute(0, 2, 3, 1)
    result = tvm.runtime.tensor(np.zeros(expected.shape, np.float32))
    program["main"](tvm.runtime.tensor(image), tvm.runtime.tensor(ready), result)
    np.testing.assert_allclose(result.numpy(), expected, atol=1e-3)


def legal(layer: nn.Module, image: torch.Tensor) -> tvm.IRModule:
    return rearrange_constants(channels_last(to_relax(layer, image)))


def test_a_convolution_is_replaced_and_computes_the_same() -> None:
    torch.manual_seed(0)
    layer, image = nn.Sequential(nn.Conv2d(32, 64, 3, padding=1), nn.ReLU()), torch.randn(1, 32, 28, 28)
    replaced = use_winograd(legal(layer, image))
    assert "nn.conv2d" not in replaced["main"].script()
    assert "conv2d_winograd" in replaced["main"].script()
    np.testing.assert_allclose(output(replaced, image), layer(image).detach(), atol=1e-4)


class OwnWeights(nn.Module):
    def forward(self, image: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.conv2d(image, weights, padding=1)


@pytest.mark.parametrize(
    ("layer", "size"),
    [
        (nn.Conv2d(32, 64, 3, padding=1, stride=2), 56),
        (nn.Conv2d(32, 64, 3, padding=2, dilation=2), 28),
        (nn.Conv2d(32, 64, 3, padding=1, groups=2), 56),
        (nn.Conv2d(32, 64, 1), 56),
        (nn.Conv2d(32, 64, 5), 28),
        # Its channels are no whole vectors.
        (nn.Conv2d(32, 60, 3, padding=1), 28),
        # Half of the outputs would be cut off, and too little to do.
        (nn.Conv2d(512, 512, 3, padding=1), 7),
        (nn.Conv2d(16, 16, 3, padding=1), 28),
    ],
)
def test_other_convolutions_stay(layer: nn.Conv2d, size: int) -> None:
    mod = legal(layer, torch.randn(1, layer.in_channels, size, size))
    assert use_winograd(mod) is mod


def test_weights_that_are_no_constants_and_other_types_stay() -> None:
    image, weights = torch.randn(1, 32, 28, 28), torch.randn(64, 32, 3, 3)
    mod = channels_last(to_relax(OwnWeights(), image, weights))
    assert use_winograd(mod) is mod
    mod = legal(nn.Conv2d(32, 64, 3, padding=1, bias=False).half(), image.half())
    assert use_winograd(mod) is mod
