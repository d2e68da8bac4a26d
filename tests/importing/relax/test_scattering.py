from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.importing.relax.against_onnxruntime import check

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])
@pytest.mark.parametrize("count", [3, 40])
@pytest.mark.parametrize("is_constant", [True, False])
def test_elements(reduction: str, count: int, is_constant: bool) -> None:
    x, updates = (RNG.standard_normal((50, size)).astype(np.float32) for size in (50, count))
    places = np.stack([RNG.permutation(50)[:count] for _ in range(50)])
    if reduction != "none":
        places = places % 7 - 3
    node = helper.make_node("ScatterElements", ["x", "i", "u"], ["y"], axis=1, reduction=reduction)
    given = {"x": x[:2], "u": updates[:2]}
    indices = {"i": places[:2]}
    whole = given if is_constant else {"x": given["x"], "i": indices["i"], "u": given["u"]}
    check(node, whole, rtol=1e-4, constants=indices if is_constant else None, opset=18)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "min", "max"])
@pytest.mark.parametrize("count", [4, 30])
@pytest.mark.parametrize("is_constant", [True, False])
def test_slices(reduction: str, count: int, is_constant: bool) -> None:
    x, updates = RNG.standard_normal((8, 5, 6)).astype(np.float32), RNG.standard_normal((count, 6)).astype(np.float32)
    places = RNG.permutation(40)[:count] if reduction == "none" else RNG.integers(0, 9, count)
    indices = {"i": np.stack([places // 5, places % 5 - 5], axis=-1)}
    node = helper.make_node("ScatterND", ["x", "i", "u"], ["y"], reduction=reduction)
    whole = {"x": x, "u": updates} if is_constant else {"x": x, **indices, "u": updates}
    check(node, whole, rtol=1e-4, constants=indices if is_constant else None, opset=18)


@pytest.mark.parametrize("count", [2, 20])
def test_updates_never_reach_outside(count: int) -> None:
    places = np.resize([99, -99], (count, 1))
    node = helper.make_node("ScatterND", ["x", "i", "u"], ["y"], reduction="add")
    wanted = np.array([count / 2, 0, 0, count / 2], np.float32)
    inputs = {"x": np.zeros(4, np.float32), "i": places, "u": np.ones(count, np.float32)}
    check(node, inputs, wanted=[wanted], opset=18)


def test_the_last_of_equal_constant_places_is_written() -> None:
    node = helper.make_node("ScatterND", ["x", "i", "u"], ["y"])
    inputs = {"x": np.zeros(3, np.float32), "u": np.array([1, 2, 3], np.float32)}
    check(node, inputs, constants={"i": np.array([[1], [1], [0]])}, wanted=[np.array([3, 2, 0], np.float32)], opset=18)


@pytest.mark.parametrize(("mode", "wanted"), [("linear", [[1, 8, 9, 4]]), ("circular", [[9, 2, 3, 8]])])
def test_a_cache(mode: str, wanted: list[list[int]]) -> None:
    node = helper.make_node("TensorScatter", ["x", "u", "i"], ["y"], mode=mode, axis=-1)
    start = 1 if mode == "linear" else 3
    inputs = {"x": np.array([[1, 2, 3, 4]], np.float32), "u": np.array([[8, 9]], np.float32), "i": np.array([start])}
    check(node, inputs, wanted=[np.array(wanted, np.float32)], opset=24)
