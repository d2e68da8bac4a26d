from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.importing.relax.against_onnxruntime import check, model_of
from tvm_gnn_cost.errors import InputError

pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(0)


def floats(*shape: int, dtype: Any = np.float32) -> Any:
    return RNG.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize(
    ("left", "right"), [((3, 4), (4, 5)), ((4,), (4, 5)), ((2, 3, 4), (4,)), ((2, 1, 3, 4), (5, 4, 2)), ((4,), (4,))]
)
def test_matrix_products(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    check(helper.make_node("MatMul", ["x", "y"], ["z"]), {"x": floats(*left), "y": floats(*right)}, rtol=1e-4)


@pytest.mark.parametrize("turned", [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_gemm(turned: tuple[int, int]) -> None:
    a, b = floats(3, 4), floats(4, 5)
    inputs = {"a": a.T.copy() if turned[0] else a}
    constants = {"b": b.T.copy() if turned[1] else b, "c": floats(5)}
    node = helper.make_node("Gemm", ["a", "b", "c"], ["y"], transA=turned[0], transB=turned[1], alpha=0.5, beta=2.0)
    check(model_of(node, inputs, constants), inputs, rtol=1e-4, atol=1e-5)


CONVOLUTIONS = [
    ((1, 4, 9), (6, 4, 3), {}),
    ((1, 4, 9), (6, 2, 3), {"group": 2, "pads": [2, 1], "strides": [2], "dilations": [2]}),
    ((2, 3, 8, 7), (4, 3, 3, 2), {"pads": [1, 0, 2, 1], "strides": [2, 1]}),
    ((1, 4, 8, 8), (4, 1, 3, 3), {"group": 4, "auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    ((1, 2, 5, 6, 4), (3, 2, 2, 3, 1), {"auto_pad": "SAME_UPPER"}),
]


@pytest.mark.parametrize(("shape", "kernel", "settings"), CONVOLUTIONS)
def test_convolutions(shape: tuple[int, ...], kernel: tuple[int, ...], settings: dict[str, Any]) -> None:
    inputs, constants = {"x": floats(*shape)}, {"w": floats(*kernel), "b": floats(kernel[0])}
    node = helper.make_node("Conv", ["x", "w", "b"], ["y"], **settings)
    check(model_of(node, inputs, constants), inputs, rtol=1e-4, atol=1e-4)


def test_a_convolution_of_float16_and_of_weights_that_are_inputs() -> None:
    node = helper.make_node("Conv", ["x", "w"], ["y"])
    inputs = {"x": floats(1, 2, 5, 5, dtype=np.float16), "w": floats(3, 2, 3, 3, dtype=np.float16)}
    check(node, inputs, rtol=5e-3, atol=5e-3)


TRANSPOSED = [
    ((1, 3, 4), (3, 2, 3), {"strides": [2], "pads": [1, 0], "output_padding": [1]}),
    ((1, 4, 3, 5), (4, 2, 3, 2), {"group": 2, "strides": [2, 3]}),
    ((1, 2, 4, 4), (2, 3, 3, 3), {"dilations": [2, 1], "pads": [1, 1, 1, 1]}),
    ((1, 2, 4, 4), (2, 3, 2, 2), {"strides": [3, 3], "output_shape": [12, 11]}),
    ((1, 2, 3, 4), (2, 1, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ((1, 2, 3, 2, 3), (2, 2, 2, 2, 2), {"strides": [2, 1, 1]}),
]


@pytest.mark.parametrize(("shape", "kernel", "settings"), TRANSPOSED)
def test_transposed_convolutions(shape: tuple[int, ...], kernel: tuple[int, ...], settings: dict[str, Any]) -> None:
    inputs, constants = {"x": floats(*shape)}, {"w": floats(*kernel)}
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], **settings)
    check(model_of(node, inputs, constants), inputs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("zero", [np.array(3, np.uint8), np.array([1, 2, 3, 4, 5], np.int8)])
def test_products_of_integers(zero: Any) -> None:
    x = RNG.integers(0, 255, (3, 4)).astype(np.uint8)
    w = RNG.integers(0, 100, (4, 5)).astype(zero.dtype)
    constants = {"w": w, "x_zero": np.array(100, np.uint8), "w_zero": zero}
    node = helper.make_node("MatMulInteger", ["x", "w", "x_zero", "w_zero"], ["y"])
    check(model_of(node, {"x": x}, constants), {"x": x})


def test_a_convolution_of_integers() -> None:
    x, w = RNG.integers(0, 255, (1, 2, 5, 5)).astype(np.uint8), RNG.integers(0, 255, (3, 2, 3, 3)).astype(np.uint8)
    node = helper.make_node("ConvInteger", ["x", "w", "zero"], ["y"], pads=[1, 1, 1, 1])
    check(model_of(node, {"x": x}, {"w": w, "zero": np.array(7, np.uint8)}), {"x": x})


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (3, 4, 4), (2, 2, 5, 5)])
def test_small_matrices(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    check(helper.make_node("Det", ["x"], ["y"]), {"x": x}, rtol=1e-4, atol=1e-5)


def test_large_matrices_are_refused() -> None:
    with pytest.raises(InputError, match="its matrices have more than 5 rows"):
        check(helper.make_node("Det", ["x"], ["y"]), {"x": np.eye(6, dtype=np.float32)})
