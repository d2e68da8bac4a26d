from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.importing.relax.against_onnxruntime import check

pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(0)


def floats(*shape: int, dtype: Any = np.float32) -> Any:
    return (2 * RNG.standard_normal(shape)).astype(dtype)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_functions_of_one_element(dtype: Any) -> None:
    nodes = [
        helper.make_node("Abs", ["x"], ["positive"]),
        helper.make_node("Sqrt", ["positive"], ["root"]),
        helper.make_node("Exp", ["x"], ["power"]),
        helper.make_node("Sigmoid", ["power"], ["gate"]),
        helper.make_node("Tanh", ["root"], ["bounded"]),
        helper.make_node("Sum", ["gate", "bounded", "root"], ["total"]),
        helper.make_node("Neg", ["total"], ["y"]),
    ]
    tolerance = 4e-3 if dtype == np.float16 else 1e-3
    check_nodes(nodes, {"x": floats(3, 5, dtype=dtype)}, tolerance)


def check_nodes(nodes: list[Any], inputs: dict[str, Any], rtol: float = 1e-5, **options: Any) -> None:
    from tests.importing.relax.against_onnxruntime import model_of

    check(model_of(nodes, inputs, **options), inputs, rtol=rtol, atol=rtol)


def test_nan_and_infinities_pass_through() -> None:
    x = np.array([np.nan, -np.inf, np.inf, -1.0, 0.5, 7.0], np.float32)
    bounds = {"low": np.float32(0.0), "high": np.float32(6.0)}
    for node in (
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Clip", ["x", "low", "high"], ["y"]),
        helper.make_node("LeakyRelu", ["x"], ["y"], alpha=0.1),
        helper.make_node("Max", ["x", "low"], ["y"]),
        helper.make_node("IsInf", ["x"], ["y"], detect_negative=0),
        helper.make_node("IsNaN", ["x"], ["y"]),
    ):
        check_nodes([node], {"x": x}, constants=bounds)


@pytest.mark.parametrize("operator", ["Max", "Min"])
def test_the_extreme_of_a_number_and_nan_is_nan(operator: str) -> None:
    x, y = np.array([np.nan, 1.0, 2.0], np.float32), np.array([1.0, np.nan, 3.0], np.float32)
    wanted = np.maximum(x, y) if operator == "Max" else np.minimum(x, y)
    check(helper.make_node(operator, ["x", "y"], ["z"]), {"x": x, "y": y}, wanted=[wanted])


@pytest.mark.parametrize("operator", ["Div", "Mod"])
def test_integers_are_divided_as_in_onnx_and_by_zero_without_a_crash(operator: str) -> None:
    left, right = np.array([7, -7, 7, -7], np.int32), np.array([3, 3, -3, -3], np.int32)
    node = helper.make_node(operator, ["x", "y"], ["z"])
    check(node, {"x": left, "y": right})
    check(node, {"x": left, "y": right * 0}, wanted=[left if operator == "Div" else left * 0])


def test_remainders_of_floats() -> None:
    left, right = np.array([5.3, -5.3, 5.3, -5.3], np.float32), np.array([2.0, 2.0, -2.0, -2.0], np.float32)
    check(helper.make_node("Mod", ["x", "y"], ["z"], fmod=1), {"x": left, "y": right})


def test_halves_are_rounded_to_even() -> None:
    x = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 2.4, 2.6], np.float32)
    check(helper.make_node("Round", ["x"], ["y"]), {"x": x})


@pytest.mark.parametrize("exponent", [0.5, 1.0, 2.0, 3.0, 4.0, -1.5])
def test_powers_of_constants(exponent: float) -> None:
    x = np.abs(floats(3, 4))
    check_nodes([helper.make_node("Pow", ["x", "e"], ["y"])], {"x": x}, 1e-4, constants={"e": np.float32(exponent)})


def test_a_power_has_the_type_of_its_base() -> None:
    check(helper.make_node("Pow", ["x", "e"], ["y"]), {"x": np.array([2, 3]), "e": np.array([2.0, 0.5], np.float32)})


@pytest.mark.parametrize(
    ("source", "wanted"),
    [(np.float32, "INT32"), (np.float32, "BOOL"), (np.bool_, "FLOAT"), (np.int64, "FLOAT16"), (np.float16, "DOUBLE")],
)
def test_types_are_converted(source: Any, wanted: str) -> None:
    x = np.array([-3.7, -1.0, 0.0, 0.4, 2.5]).astype(source)
    check(helper.make_node("Cast", ["x"], ["y"], to=getattr(TensorProto, wanted)), {"x": x})


def test_bfloat16_is_rounded_once() -> None:
    x, y = (floats(5).astype(ml_dtypes.bfloat16) for _ in range(2))
    wanted = (x.astype(np.float32) * y.astype(np.float32)).astype(ml_dtypes.bfloat16)
    check(helper.make_node("Mul", ["x", "y"], ["z"]), {"x": x, "y": y}, wanted=[wanted])


def test_shifts_by_more_than_the_width() -> None:
    x, by = np.array([1, 2, 255], np.uint8), np.array([1, 7, 8], np.uint8)
    node = helper.make_node("BitShift", ["x", "by"], ["y"], direction="LEFT")
    check(node, {"x": x, "by": by}, wanted=[np.array([2, 0, 0], np.uint8)])


def test_an_old_operators_axis() -> None:
    node = helper.make_node("Add", ["x", "y"], ["z"], broadcast=1, axis=1)
    x, y = floats(2, 3, 4), floats(3)
    check(node, {"x": x, "y": y}, opset=6, wanted=[x + y[:, None]])


def test_truth_values_are_compared_with_a_constant() -> None:
    node = helper.make_node("Equal", ["x", "t"], ["y"])
    check(node, {"x": np.array([True, False])}, constants={"t": np.array(True)})
