from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tvm_gnn_cost.datasets.split import TEST_NETWORKS
from tvm_gnn_cost.networks.catalogue import TUNED
from tvm_gnn_cost.networks.layers import LAYERS, layer, layer_names

#: Input and output channels, rows, kernel, strides and groups of a convolution.
Signature = tuple[Any, ...]

#: Input shapes of the layers 0 and 1 of each kind. Records name layers by their number, so a number must never come to
#: mean other shapes.
SHAPES = {
    "pointwise-layer": [(1, 72, 72, 72), (1, 64, 28, 28)],
    "conv3x3-layer": [(1, 24, 75, 75), (1, 32, 96, 96)],
    "wide-conv-layer": [(1, 160, 14, 14), (1, 24, 28, 28)],
    "stem-layer": [(1, 4, 160, 160), (1, 4, 96, 96)],
    "depthwise-layer": [(1, 24, 44, 44), (1, 24, 80, 80)],
    "grouped-layer": [(1, 768, 12, 12), (1, 64, 7, 7)],
    "dilated-layer": [(1, 64, 104, 104), (1, 128, 22, 22)],
    "transposed-layer": [(1, 128, 44, 44), (1, 320, 4, 4)],
    "conv1d-layer": [(1, 128, 256), (1, 128, 50)],
    "linear-layer": [(197, 128), (64, 1000)],
    "products-layer": [(12, 77, 26), (3, 257, 64)],
    "attention-layer": [(1, 96, 1024), (1, 32, 768)],
    "normalisation-layer": [(1, 384, 384), (1, 384, 768)],
    "softmax-layer": [(8, 100), (64, 10)],
    "pooling-layer": [(1, 256, 40, 40), (1, 112, 24, 24)],
    "reduction-layer": [(1, 320, 10, 10), (1, 120, 12, 12)],
    "elementwise-layer": [(1, 800, 19, 19), (1, 512, 24, 24)],
    "squeeze-excite-layer": [(1, 512, 7, 7), (1, 40, 64, 64)],
}


def convolutions(module: nn.Module, shape: tuple[int, ...]) -> set[Signature]:
    """The convolutions that a module runs."""
    result: set[Signature] = set()

    def note(conv: Any, inputs: Any, _output: Any) -> None:
        size = inputs[0].shape[2]
        result.add((conv.in_channels, conv.out_channels, size, conv.kernel_size, conv.stride, conv.groups))

    for item in module.modules():
        if isinstance(item, nn.Conv2d):
            item.register_forward_hook(note)
    with torch.inference_mode():
        module.eval()(torch.zeros(shape))
    return result


def test_a_number_means_the_same_shapes_for_ever() -> None:
    assert {kind: [layer(kind, number)[1] for number in range(2)] for kind in LAYERS} == SHAPES


@pytest.mark.parametrize("kind", LAYERS)
def test_a_layer_runs_on_its_input(kind: str) -> None:
    for number in range(6):
        module, shape = layer(kind, number)
        with torch.inference_mode():
            out = module.eval()(torch.zeros(shape))
        assert out.numel()
        assert out.dtype == torch.float32


@pytest.mark.parametrize("kind", LAYERS)
def test_numbers_differ(kind: str) -> None:
    def described(number: int) -> str:
        module, shape = layer(kind, number)
        return f"{module} {[tuple(p.shape) for p in module.parameters()]} {shape}"

    assert described(5) == described(5)
    assert len({described(number) for number in range(12)}) > 6


def test_names_are_spread_over_the_kinds() -> None:
    names = layer_names(200)
    assert len(set(names)) == len(names) == 200
    for part in (names[:100], names[100:]):
        kinds = [name.partition("/")[0] for name in part]
        assert set(kinds) == set(LAYERS)
        for kind, (share, _) in LAYERS.items():
            assert abs(kinds.count(kind) - share) <= 1


def test_shares_are_percentages() -> None:
    assert sum(share for share, _ in LAYERS.values()) == 100


def test_no_layer_is_a_convolution_of_a_test_network() -> None:
    tested: set[Signature] = set()
    for name in TEST_NETWORKS["meta-schedule"]:
        make, shape = TUNED[name]
        tested |= convolutions(make(), shape)
    assert len(tested) > 80
    for name in layer_names(120):
        kind, _, number = name.partition("/")
        assert not tested & convolutions(*layer(kind, int(number))), name
