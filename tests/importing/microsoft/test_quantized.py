from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.importing.relax.against_onnxruntime import check

RNG = np.random.default_rng(0)
DOMAINS = {"com.microsoft": 1}


def stored(*shape: int, dtype: Any = np.uint8) -> Any:
    bounds = np.iinfo(dtype)
    return RNG.integers(bounds.min, bounds.max + 1, shape).astype(dtype)


def scale(number: int) -> dict[str, Any]:
    return {
        f"scale{number}": np.array(0.03 + 0.01 * number, np.float32),
        f"zero{number}": np.array(100 + number, np.uint8),
    }


def _check(operator: str, operands: dict[str, Any], inputs: str, atol: float = 1e-5, **attributes: Any) -> None:
    given = {name: value for name, value in operands.items() if name in inputs.split()}
    weights = {name: value for name, value in operands.items() if name not in given}
    node = helper.make_node(operator, list(operands), ["y"], domain="com.microsoft", **attributes)
    check(node, given, constants=weights, domains=DOMAINS, opset=17, rtol=1e-3, atol=atol)


@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
def test_sums_and_products(operator: str) -> None:
    _check(operator, {"a": stored(2, 3, 4), **scale(0), "b": stored(3, 4), **scale(1), **scale(2)}, "a b")


def test_functions() -> None:
    operands = {"a": stored(2, 3, 4, 4), **scale(0), **scale(1)}
    _check("QLinearSigmoid", operands, "a")
    _check("QLinearLeakyRelu", operands, "a", alpha=0.1)
    # A mean that is between two integers is rounded to either.
    _check("QLinearAveragePool", operands, "a", atol=1, kernel_shape=[2, 2])


@pytest.mark.parametrize("channels_last", [0, 1])
def test_means_of_images(channels_last: int) -> None:
    operands = {"a": stored(2, 3, 4, 4), **scale(0), **scale(1)}
    _check("QLinearGlobalAveragePool", operands, "a", atol=1, channels_last=channels_last)


def test_choices() -> None:
    _check("QLinearConcat", {**scale(2), "a": stored(2, 3), **scale(0), "b": stored(2, 4), **scale(1)}, "a b", axis=1)
    condition = {"c": np.array([[True, False, True]])}
    _check(
        "QLinearWhere", {**condition, "a": stored(2, 3), **scale(0), "b": stored(2, 3), **scale(1), **scale(2)}, "c a b"
    )


@pytest.mark.parametrize("is_rounded", [True, False])
def test_dense_layers(is_rounded: bool) -> None:
    bias = {"c": RNG.integers(-1000, 1000, 5).astype(np.int32)}
    output = {"s": np.array(0.3, np.float32), "z": np.array(90, np.uint8)} if is_rounded else {}
    _check("QGemm", {"a": stored(3, 4), **scale(0), "b": stored(4, 5), **scale(1), **bias, **output}, "a")


def test_products_of_integers() -> None:
    weights = {"b": stored(8, 5, dtype=np.int8)}
    factor, zero = {"s": np.array(0.02, np.float32)}, {"z": np.array(3, np.int8)}
    x = {"a": RNG.standard_normal((3, 8)).astype(np.float32)}
    _check("DynamicQuantizeMatMul", {**x, **weights, **factor, **zero}, "a")
    actual = {"sa": np.array(0.1, np.float32), **factor, "za": np.array(9, np.uint8), **zero}
    _check("MatMulIntegerToFloat", {"a": stored(3, 8), **weights, **actual}, "a")


@pytest.mark.parametrize(("rows", "block"), [(64, 32), (40, 16)])
@pytest.mark.parametrize("has_zeros", [True, False])
def test_weights_of_four_bits(rows: int, block: int, has_zeros: bool) -> None:
    blocks = -(-rows // block)
    weights = {"b": stored(5, blocks, block // 2), "s": RNG.standard_normal(5 * blocks).astype(np.float32)}
    zeros = {"z": stored(5 * ((blocks + 1) // 2))} if has_zeros else {}
    x = {"a": RNG.standard_normal((3, rows)).astype(np.float32)}
    _check("MatMulNBits", {**x, **weights, **zeros}, "a", atol=1e-2, K=rows, N=5, bits=4, block_size=block)
