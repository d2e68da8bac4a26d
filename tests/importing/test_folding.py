from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tvm_gnn_cost.importing.folding import counted, evaluate

OPSETS = [helper.make_opsetid("", 18)]


def test_operators_on_constants_are_computed() -> None:
    node = helper.make_node("Split", ["x", "sizes"], ["a", "b"], axis=0)
    result = evaluate(node, [np.arange(5), np.array([2, 3])], OPSETS)
    assert result is not None
    assert [item.tolist() for item in result] == [[0, 1], [2, 3, 4]]


def test_operands_may_be_left_out() -> None:
    result = evaluate(helper.make_node("Clip", ["x", "", "high"], ["y"]), [np.arange(4), None, np.array(2)], OPSETS)
    assert result is not None
    assert result[0].tolist() == [0, 1, 2, 2]


def test_what_is_random_or_unknown_is_not_computed() -> None:
    assert evaluate(helper.make_node("RandomUniform", [], ["y"], shape=[2]), [], OPSETS) is None
    assert evaluate(helper.make_node("NoSuchOperator", ["x"], ["y"]), [np.zeros(2)], OPSETS) is None


@pytest.mark.parametrize(
    ("attributes", "image", "windows", "wanted"),
    [
        ({"ceil_mode": 1, "strides": [2, 2], "pads": [1, 0, 1, 0]}, [17, 5], [10, 3], [9, 3]),
        ({"ceil_mode": 1, "strides": [3], "auto_pad": "VALID"}, [6], [3], [2]),
        # Without ceil_mode, padding behind the operand has windows of its own.
        ({"ceil_mode": 0, "strides": [1], "pads": [0, 2]}, [3], [5], [5]),
        ({"ceil_mode": 1, "strides": [2], "auto_pad": "SAME_UPPER"}, [5], [3], [3]),
        ({"ceil_mode": 1}, [4], [3], [3]),
    ],
)
def test_windows_behind_the_padding_are_not_counted(
    attributes: dict[str, object], image: list[int], windows: list[int], wanted: list[int]
) -> None:
    assert counted(attributes, image, windows) == wanted
