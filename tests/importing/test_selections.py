from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from tests.importing.relax.against_onnxruntime import check, model_of
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.importing.selections import EXPANSIONS
from tvm_gnn_cost.importing.simplify import simplify
from tvm_gnn_cost.installed import has

pytestmark = pytest.mark.skipif(not has("s_tir"), reason="needs today's TVM")

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("attributes", [{}, {"axis": 0}, {"axis": -1}])
def test_compress_by_a_constant(attributes: dict[str, int]) -> None:
    node = helper.make_node("Compress", ["x", "c"], ["y"], **attributes)
    check(node, {"x": X}, constants={"c": np.array([False, True, True])})


@pytest.mark.parametrize("operator", ["NonZero", "Unique"])
def test_unknown_sizes_are_refused(operator: str) -> None:
    with pytest.raises(InputError, match=rf"{operator} .*: the size of its output depends on values"):
        check(helper.make_node(operator, ["x"], ["y"]), {"x": X}, wanted=[])


KEPT = ("Reshape", "ScatterElements", "Pad")
POOLED = {"x": np.arange(1, 5, dtype=np.float32).reshape(1, 1, 2, 2)}
PLACES = np.array([5, 7, 13, 15]).reshape(1, 1, 2, 2)


def unpool(output_shape: list[int] | None, **attributes: Any) -> tuple[list[str], Any]:
    """The operators that it becomes, and what they compute."""
    node = helper.make_node("MaxUnpool", ["x", "i"] + ["s"] * (output_shape is not None), ["y"], **attributes)
    constants = {"i": PLACES} | ({} if output_shape is None else {"s": np.array(output_shape)})
    graph = simplify(model_of(node, POOLED, constants, opset=11), "net", KEPT, EXPANSIONS)
    values: dict[Any, Any] = {graph.inputs[0]: POOLED["x"]}
    for item in graph.nodes:
        names = [f"i{number}" if value is not None else "" for number, value in enumerate(item.inputs)]
        given = [value if isinstance(value, np.ndarray) else values.get(value) for value in item.inputs]
        feed = {name: value for name, value in zip(names, given, strict=True) if name}
        proto = helper.make_node(item.operator, names, ["y"], **item.attributes)
        [values[item.outputs[0]]] = ReferenceEvaluator(model_of(proto, feed, opset=18)).run(None, feed)
    return [node.operator for node in graph.nodes], values[graph.outputs[0][1]]


def test_each_element_goes_back_to_its_place() -> None:
    wanted = np.zeros((1, 1, 4, 4), np.float32)
    wanted[0, 0, [1, 1, 3, 3], [1, 3, 1, 3]] = [1, 2, 3, 4]
    operators, result = unpool(None, kernel_shape=[2, 2], strides=[2, 2])
    assert "Pad" not in operators
    np.testing.assert_array_equal(result, wanted)
    operators, result = unpool([1, 1, 5, 6], kernel_shape=[2, 2], strides=[2, 2])
    assert operators[-1] == "Pad"
    np.testing.assert_array_equal(result, np.pad(wanted, ((0, 0), (0, 0), (0, 1), (0, 2))))


def test_a_smaller_output_is_refused() -> None:
    with pytest.raises(InputError, match=r"MaxUnpool.*output_shape is smaller"):
        unpool([1, 1, 3, 3], kernel_shape=[2, 2], strides=[2, 2])
