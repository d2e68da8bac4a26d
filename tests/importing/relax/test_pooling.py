from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.importing.relax.against_onnxruntime import check, model_of, run
from tvm_gnn_cost.errors import InputError

RNG = np.random.default_rng(0)


def drawn(*shape: int) -> Any:
    return (RNG.normal(size=shape) * 9).astype(np.float32)


#: Windows along one to three axes.
WINDOWS: dict[str, tuple[tuple[int, ...], dict[str, Any]]] = {
    "plain": ((1, 2, 7, 6), {"kernel_shape": [3, 2]}),
    "uneven pads": ((2, 2, 7, 9), {"kernel_shape": [3, 4], "strides": [2, 3], "pads": [1, 3, 2, 0]}),
    "ceil": ((1, 2, 6, 7), {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    "ceil with pads": ((1, 2, 9, 8), {"kernel_shape": [2, 3], "strides": [2, 2], "pads": [1, 0, 1, 2], "ceil_mode": 1}),
    "dilated": ((1, 2, 12, 9), {"kernel_shape": [3, 2], "strides": [2, 1], "dilations": [2, 3], "pads": [1, 0, 2, 1]}),
    "same upper": ((1, 2, 6, 9), {"kernel_shape": [3, 2], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    "same lower": ((1, 2, 5, 8), {"kernel_shape": [2, 3], "strides": [1, 3], "auto_pad": "SAME_LOWER"}),
    "valid": ((1, 2, 5, 8), {"kernel_shape": [2, 3], "strides": [2, 3], "auto_pad": "VALID"}),
    "one axis": ((2, 3, 9), {"kernel_shape": [4], "strides": [2], "pads": [1, 3], "ceil_mode": 1}),
    "larger than the picture": ((1, 2, 3, 2), {"kernel_shape": [9, 40], "strides": [9, 40], "ceil_mode": 1}),
    "larger with pads": ((1, 2, 4, 3), {"kernel_shape": [6, 7], "strides": [2, 3], "pads": [4, 5, 3, 6]}),
    "pads before": ((1, 2, 5, 4), {"kernel_shape": [5, 3], "strides": [6, 6], "pads": [4, 2, 0, 1]}),
    "far larger": ((1, 1, 2, 3), {"kernel_shape": [60000, 60000], "strides": [60000, 60000], "ceil_mode": 1}),
    "three axes": ((1, 2, 5, 4, 6), {"kernel_shape": [2, 3, 1], "strides": [2, 1, 2], "pads": [1, 0, 0, 0, 2, 0]}),
}


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("operator", ["MaxPool", "AveragePool", "LpPool"])
def test_windows(operator: str, name: str) -> None:
    shape, attributes = WINDOWS[name]
    check(helper.make_node(operator, ["x"], ["y"], **attributes), {"x": drawn(*shape)}, opset=22, rtol=1e-4)


@pytest.mark.parametrize("name", WINDOWS)
def test_means_that_count_the_padding(name: str) -> None:
    shape, attributes = WINDOWS[name]
    node = helper.make_node("AveragePool", ["x"], ["y"], count_include_pad=1, **attributes)
    check(node, {"x": drawn(*shape)}, opset=22, rtol=1e-4)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("name", ["uneven pads", "ceil with pads", "dilated", "same lower", "three axes"])
def test_places_of_the_largest(name: str, order: int) -> None:
    shape, attributes = WINDOWS[name]
    node = helper.make_node("MaxPool", ["x"], ["y", "i"], storage_order=order, **attributes)
    # Equal elements: the first one counts.
    check(node, {"x": np.round(drawn(*shape) / 9)}, opset=22)


@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "uint8"])
def test_types(dtype: str) -> None:
    shape, attributes = WINDOWS["uneven pads"]
    x = np.abs(drawn(*shape)).astype(dtype) if dtype == "uint8" else drawn(*shape).astype(dtype)
    check(helper.make_node("MaxPool", ["x"], ["y"], **attributes), {"x": x}, opset=22)
    if dtype == "float16":
        check(helper.make_node("AveragePool", ["x"], ["y"], **attributes), {"x": x}, opset=22, rtol=2e-3)


@pytest.mark.parametrize("shape", [(2, 3, 5), (1, 2, 4, 7), (1, 2, 3, 4, 2)])
def test_whole_channels(shape: tuple[int, ...]) -> None:
    for operator in ("GlobalMaxPool", "GlobalAveragePool"):
        check(helper.make_node(operator, ["x"], ["y"]), {"x": drawn(*shape)}, rtol=1e-4)
    for power in (1, 2, 3, 5):
        check(helper.make_node("GlobalLpPool", ["x"], ["y"], p=power), {"x": drawn(*shape)}, rtol=1e-4)


@pytest.mark.parametrize("power", [1, 3, 5])
def test_other_norms(power: int) -> None:
    shape, attributes = WINDOWS["uneven pads"]
    check(helper.make_node("LpPool", ["x"], ["y"], p=power, **attributes), {"x": drawn(*shape)}, opset=22, rtol=1e-4)


def test_places_undo_pooling() -> None:
    pool = helper.make_node("MaxPool", ["x"], ["y", "i"], kernel_shape=[2, 2], strides=[2, 2])
    back = helper.make_node("MaxUnpool", ["y", "i"], ["z"], kernel_shape=[2, 2], strides=[2, 2])
    check(model_of([pool, back], {"x": (x := drawn(2, 3, 6, 8))}, opset=11), {"x": x})


def test_regions() -> None:
    boxes = np.array([[0, 0, 0, 9, 7], [1, -3, 2, 4, 30], [1, 6, 6, 6, 6], [0, 40, 40, 50, 50]], np.float32)
    for scale in (1.0, 0.5):
        node = helper.make_node("MaxRoiPool", ["x", "r"], ["y"], pooled_shape=[3, 2], spatial_scale=scale)
        check(node, {"x": drawn(2, 3, 8, 10), "r": boxes})


def overlaid(x: Any, size: list[int], block: list[int], **more: list[int]) -> Any:
    """The sum of windows, element by element."""
    strides, dilations, pads = more["strides"], more["dilations"], more["pads"]
    spans = [(width - 1) * dilation + 1 for width, dilation in zip(block, dilations, strict=True)]
    axes = range(len(size))
    counts = [(size[i] + pads[i] + pads[len(size) + i] - spans[i]) // strides[i] + 1 for i in axes]
    x = x.reshape(len(x), -1, *block, *counts)
    result = np.zeros((*x.shape[:2], *size), x.dtype)
    for step in np.ndindex(*block):
        for window in np.ndindex(*counts):
            place = [window[i] * strides[i] + step[i] * dilations[i] - pads[i] for i in axes]
            if all(0 <= place[i] < size[i] for i in axes):
                result[(slice(None), slice(None), *place)] += x[(slice(None), slice(None), *step, *window)]
    return result


@pytest.mark.parametrize("axes", [2, 3])
def test_windows_add_up(axes: int) -> None:
    more = {"strides": [2, 1, 3][:axes], "dilations": [1, 2, 2][:axes], "pads": [1, 2, 0][:axes] + [0, 1, 1][:axes]}
    size, block = [6, 7, 5][:axes], [2, 3, 2][:axes]
    x = drawn(2, 3 * int(np.prod(block)), 18 if axes == 2 else 36)
    node = helper.make_node("Col2Im", ["x", "s", "b"], ["y"], **more)
    model = model_of(node, {"x": x}, {"s": np.array(size), "b": np.array(block)}, opset=18)
    # ONNX Runtime is wrong with dilations over three axes.
    check(model, {"x": x}, wanted=[overlaid(x, size, block, **more)], rtol=1e-4, atol=1e-4)


def test_what_onnx_runtime_pools_otherwise_is_refused() -> None:
    node = helper.make_node("MaxPool", ["x"], ["y"], kernel_shape=[2], dilations=[2], auto_pad="SAME_UPPER")
    with pytest.raises(InputError, match=r"MaxPool.*auto_pad and dilations"):
        run(model_of(node, {"x": drawn(1, 1, 7)}, opset=22), {"x": drawn(1, 1, 7)})
