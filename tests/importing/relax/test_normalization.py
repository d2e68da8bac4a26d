from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.importing.relax.against_onnxruntime import check, model_of
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.importing.relax.importer import import_onnx

RNG = np.random.default_rng(0)


def drawn(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.normal(size=shape).astype(dtype)


@pytest.mark.parametrize("opset", [7, 9, 14, 15])
@pytest.mark.parametrize("is_constant", [True, False])
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4, 5)])
def test_batch_normalization(opset: int, is_constant: bool, shape: tuple[int, ...]) -> None:
    weights = {"s": drawn(3), "b": drawn(3), "m": drawn(3), "v": np.abs(drawn(3))}
    node = helper.make_node("BatchNormalization", ["x", *weights], ["y"], epsilon=1e-3)
    inputs = {"x": drawn(*shape)}
    if is_constant:
        check(node, inputs, constants=weights, opset=opset)
    else:
        check(node, inputs | weights, opset=opset)


def test_batch_normalization_of_each_pixel() -> None:
    weights = {"s": drawn(3, 4), "b": drawn(3, 4), "m": drawn(3, 4), "v": np.abs(drawn(3, 4))}
    node = helper.make_node("BatchNormalization", ["x", *weights], ["y"], spatial=0)
    x = drawn(2, 3, 4)
    wanted = (x - weights["m"]) / np.sqrt(weights["v"] + 1e-5) * weights["s"] + weights["b"]
    check(node, {"x": x}, constants=weights, opset=7, wanted=[wanted])


def test_batch_normalization_of_an_export_for_training_is_refused_before_opset_14() -> None:
    node = helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], list("yacde"))
    weights = {"s": drawn(3), "b": drawn(3), "m": drawn(3), "v": np.abs(drawn(3))}
    model = model_of(node, {"x": drawn(2, 3)}, weights, opset=9)
    with pytest.raises(InputError, match="exported for training"):
        import_onnx(model, "net")


def test_batch_normalization_in_training_gives_the_running_statistics() -> None:
    x, weights = drawn(5, 3, 4), {"s": drawn(3), "b": drawn(3), "m": drawn(3), "v": np.abs(drawn(3))}
    node = helper.make_node("BatchNormalization", ["x", *weights], ["y", "a", "c"], training_mode=1, momentum=0.8)
    mean, variance = x.mean((0, 2)), x.var((0, 2))
    scale, offset = (weights[item].reshape(3, 1) for item in "sb")
    y = (x - mean.reshape(3, 1)) / np.sqrt(variance.reshape(3, 1) + 1e-5) * scale + offset
    running = [weights["m"] * 0.8 + mean * 0.2, weights["v"] * 0.8 + variance * 0.2]
    check(node, {"x": x}, constants=weights, wanted=[item.astype(np.float32) for item in (y, *running)], rtol=1e-4)


@pytest.mark.parametrize("opset", [7, 22])
@pytest.mark.parametrize("is_constant", [True, False])
def test_instance_normalization(opset: int, is_constant: bool) -> None:
    weights, inputs = {"s": drawn(3), "b": drawn(3)}, {"x": drawn(2, 3, 4, 5)}
    node = helper.make_node("InstanceNormalization", ["x", *weights], ["y"], epsilon=1e-3)
    if is_constant:
        check(node, inputs, constants=weights, opset=opset)
    else:
        check(node, inputs | weights, opset=opset)


@pytest.mark.parametrize("shape", [(2, 6), (2, 6, 3, 5)])
@pytest.mark.parametrize("opset", [18, 21])
def test_group_normalization(shape: tuple[int, ...], opset: int) -> None:
    # Until opset 21 there is a factor for each group.
    count = 2 if opset < 21 else 6
    weights = {"s": drawn(count), "b": drawn(count)}
    x = drawn(*shape)
    groups = x.reshape(2, 2, -1).astype(np.float64)
    flat = (groups - groups.mean(2, keepdims=True)) / np.sqrt(groups.var(2, keepdims=True) + 1e-5)
    scale, offset = (np.repeat(weight, 6 // count).reshape(6, *[1] * (len(shape) - 2)) for weight in weights.values())
    wanted = (flat.reshape(shape) * scale + offset).astype(np.float32)
    node = helper.make_node("GroupNormalization", ["x", "s", "b"], ["y"], num_groups=2)
    check(node, {"x": x}, constants=weights, opset=opset, wanted=[wanted])


@pytest.mark.parametrize("axis", [-1, 1, 0])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("outputs", [1, 2, 3])
def test_layer_normalization(axis: int, has_bias: bool, outputs: int) -> None:
    shape = (3, 4, 5)
    weights = {"s": drawn(*shape[axis:]), "b": drawn(*shape[axis:])}
    if not has_bias:
        del weights["b"]
    node = helper.make_node("LayerNormalization", ["x", *weights], ["y", "mean", "inverse"][:outputs], axis=axis)
    check(node, {"x": drawn(*shape)}, constants=weights, opset=17)


@pytest.mark.parametrize("operator", ["LayerNormalization", "InstanceNormalization", "GroupNormalization"])
def test_a_large_mean_costs_no_digits(operator: str) -> None:
    x = drawn(1, 4, 64) + np.float32(5000)
    axes = {"LayerNormalization": (2,), "InstanceNormalization": (2,), "GroupNormalization": (1, 2)}[operator]
    wide = x.astype(np.float64)
    wanted = (wide - wide.mean(axes, keepdims=True)) / np.sqrt(wide.var(axes, keepdims=True) + 1e-5)
    count = 64 if operator == "LayerNormalization" else 4
    attributes: dict[str, Any] = {"num_groups": 1} if operator == "GroupNormalization" else {}
    node = helper.make_node(operator, ["x", "s", "b"], ["y"], **attributes)
    weights = {"s": np.ones(count, np.float32), "b": np.zeros(count, np.float32)}
    # The mean is rounded to 5e-4, which shifts all by as much.
    check(node, {"x": x}, constants=weights, wanted=[wanted.astype(np.float32)], atol=2e-3)


@pytest.mark.parametrize("dtype", [np.float16, np.float64])
def test_layer_normalization_of_other_types(dtype: Any) -> None:
    x, weights = drawn(3, 64, dtype=dtype), {"s": drawn(64, dtype=dtype), "b": drawn(64, dtype=dtype)}
    wide = x.astype(np.float64)
    mean, inverse = wide.mean(1, keepdims=True), 1 / np.sqrt(wide.var(1, keepdims=True) + 1e-5)
    y = ((wide - mean) * inverse * weights["s"] + weights["b"]).astype(dtype)
    node = helper.make_node("LayerNormalization", ["x", "s", "b"], ["y", "mean", "inverse"])
    wanted = [y, mean.astype(np.float32), inverse.astype(np.float32)]
    check(node, {"x": x}, constants=weights, wanted=wanted, rtol=2e-3 if dtype == np.float16 else 1e-6, atol=1e-6)


def test_root_mean_square_normalization() -> None:
    x, scale = drawn(3, 4, 5), drawn(4, 5)
    wanted = x / np.sqrt((x * x).mean((1, 2), keepdims=True) + np.float32(1e-3)) * scale
    node = helper.make_node("RMSNormalization", ["x", "s"], ["y"], axis=1, epsilon=1e-3)
    check(node, {"x": x}, constants={"s": scale}, opset=23, wanted=[wanted])


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, -1])
def test_lp_normalization(p: int, axis: int) -> None:
    x = drawn(3, 4)
    x[1] = 0
    check(helper.make_node("LpNormalization", ["x"], ["y"], p=p, axis=axis), {"x": x})


@pytest.mark.parametrize("axes", [[0, 2, 3], [1], [-1, 0]])
def test_mean_variance_normalization(axes: list[int]) -> None:
    x = drawn(3, 4, 5, 6)
    wide, over = x.astype(np.float64), tuple(axes)
    wanted = (wide - wide.mean(over, keepdims=True)) / (wide.std(over, keepdims=True) + 1e-9)
    node = helper.make_node("MeanVarianceNormalization", ["x"], ["y"], axes=axes)
    check(node, {"x": x}, opset=13, wanted=[wanted.astype(np.float32)])


@pytest.mark.parametrize("size", [1, 3, 5, 21])
@pytest.mark.parametrize("beta", [0.75, 0.3])
def test_local_response_normalization(size: int, beta: float) -> None:
    node = helper.make_node("LRN", ["x"], ["y"], size=size, beta=beta, alpha=0.2, bias=1.5)
    check(node, {"x": drawn(2, 7, 3, 2)})


def test_local_response_normalization_over_an_even_number_of_channels() -> None:
    x, size = drawn(1, 5, 2, 2), 4
    squares = np.pad(x * x, [(0, 0), (1, 2), (0, 0), (0, 0)])
    total = sum(squares[:, i : i + 5] for i in range(size))
    node = helper.make_node("LRN", ["x"], ["y"], size=size)
    check(node, {"x": x}, wanted=[x / (1 + np.float32(1e-4) / size * total) ** np.float32(0.75)])
