from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.importing.relax.against_onnxruntime import check, model_of

pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("operator", ["ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum"])
@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("axes", [None, [1], [-1, 0]])
def test_reductions(operator: str, keep: int, axes: list[int] | None) -> None:
    x = {"x": floats(3, 4, 5)}
    constants = {} if axes is None else {"axes": np.array(axes)}
    node = helper.make_node(operator, ["x", *constants], ["y"], keepdims=keep)
    check(model_of(node, x, constants), x, rtol=1e-4)


def test_axes_as_an_attribute_and_none_at_all() -> None:
    check(helper.make_node("ReduceMean", ["x"], ["y"], axes=[1]), {"x": floats(3, 4)}, opset=13)
    check(helper.make_node("ReduceSum", ["x"], ["y"], noop_with_empty_axes=1), {"x": floats(3, 4)})


@pytest.mark.parametrize("operator", ["ReduceMax", "ReduceMin"])
def test_extremes_of_infinities_and_nan(operator: str) -> None:
    x = np.array([[-np.inf, -np.inf], [np.inf, np.inf], [np.nan, 1.0], [1.0, np.nan]], np.float32)
    node = helper.make_node(operator, ["x", "axes"], ["y"], keepdims=0)
    wanted = x.max(1) if operator == "ReduceMax" else x.min(1)
    check(model_of(node, {"x": x}, {"axes": np.array([1])}), {"x": x}, wanted=[wanted])


def test_integers_and_bools() -> None:
    x = np.array([[7, 2], [-3, 4]], np.int32)
    check(helper.make_node("ReduceMean", ["x"], ["y"], axes=[1]), {"x": x}, opset=13)
    check(helper.make_node("ReduceMax", ["x"], ["y"]), {"x": x > 2}, opset=20, wanted=[np.array([[True]])])


@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax", "Hardmax"])
@pytest.mark.parametrize(("opset", "axis"), [(13, 1), (11, 1), (13, -1)])
def test_softmax(operator: str, opset: int, axis: int) -> None:
    check(helper.make_node(operator, ["x"], ["y"], axis=axis), {"x": floats(2, 3, 4)}, opset=opset, rtol=1e-4)


def test_a_long_softmax_of_float16() -> None:
    x = RNG.standard_normal((2, 5000)).astype(np.float16)
    check(helper.make_node("Softmax", ["x"], ["y"]), {"x": x}, rtol=4e-3, atol=1e-6)


@pytest.mark.parametrize("operator", ["ArgMax", "ArgMin"])
@pytest.mark.parametrize("last", [0, 1])
def test_positions_of_equal_values(operator: str, last: int) -> None:
    x = np.array([[1, 3, 3, 1], [2, 2, 2, 2]], np.float32)
    check(helper.make_node(operator, ["x"], ["y"], axis=1, keepdims=0, select_last_index=last), {"x": x})
