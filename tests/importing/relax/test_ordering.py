from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.importing.relax.against_onnxruntime import check

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("size", [7, 500])
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_top_k_gives_the_first_of_equal_ones(size: int, largest: int, dtype: Any) -> None:
    x = np.round(RNG.standard_normal((2, size, 3)) * 3).astype(dtype)
    node = helper.make_node("TopK", ["x", "k"], ["v", "i"], axis=1, largest=largest)
    order = np.argsort(-x if largest else x, axis=1, kind="stable")[:, :5]
    wanted = [np.take_along_axis(x, order, axis=1), order]
    check(node, {"x": x}, constants={"k": np.array([5])}, wanted=wanted)
    check(node, {"x": x}, constants={"k": np.array([5])})


def test_top_k_of_half_floats() -> None:
    node = helper.make_node("TopK", ["x", "k"], ["v", "i"])
    x = RNG.permutation(40).astype(np.float16)
    check(node, {"x": x}, constants={"k": np.array([3])})


@pytest.mark.parametrize("size", [1, 32, 33, 1200])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_running_sums(size: int, exclusive: int, reverse: int) -> None:
    node = helper.make_node("CumSum", ["x", "a"], ["y"], exclusive=exclusive, reverse=reverse)
    x = RNG.standard_normal((2, size, 3)).astype(np.float32)
    check(node, {"x": x}, constants={"a": np.array(-2)}, rtol=1e-4, atol=1e-4)


def test_running_products() -> None:
    node = helper.make_node("CumProd", ["x", "a"], ["y"])
    x = RNG.uniform(0.9, 1.1, 70)
    check(node, {"x": x}, constants={"a": np.array(0)}, wanted=[np.cumprod(x)], opset=26)
