from __future__ import annotations

import numpy as np
import onnx
from onnx import helper

from tests.importing.models import model
from tvm_gnn_cost.importing.control_flow import EXPANSIONS
from tvm_gnn_cost.importing.ranges import index_limits
from tvm_gnn_cost.importing.simplify import simplify

KEPT = ("Gather", "GatherND", "Reshape", "Add", "Cast", "Mul", "Where")
TABLE = np.ones((50, 4), np.float32)


def limits(nodes: list[onnx.NodeProto], inputs: dict[str, list[int]], output: str) -> dict[str, int]:
    weights = {"table": TABLE, "short": TABLE[:7], "two": np.array(2), "shape": np.array([-1])}
    made = model(nodes, inputs, [output], weights, dtype=onnx.TensorProto.INT64)
    return index_limits(simplify(made, "net", KEPT, EXPANSIONS))


def test_an_index_is_below_the_tables_size() -> None:
    assert limits([helper.make_node("Gather", ["table", "ids"], ["y"])], {"ids": [3]}, "y") == {"ids": 50}
    assert limits([helper.make_node("Gather", ["table", "ids"], ["y"], axis=1)], {"ids": [3]}, "y") == {"ids": 4}
    assert limits([helper.make_node("GatherND", ["table", "ids"], ["y"])], {"ids": [3, 2]}, "y") == {"ids": 4}


def test_the_smallest_table_decides_and_an_offset_counts() -> None:
    nodes = [
        helper.make_node("Reshape", ["ids", "shape"], ["flat"]),
        helper.make_node("Add", ["flat", "two"], ["moved"]),
        helper.make_node("Gather", ["short", "moved"], ["a"]),
        helper.make_node("Gather", ["table", "ids"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["y"]),
    ]
    # ids + 2 is less than 7.
    assert limits(nodes, {"ids": [3]}, "y") == {"ids": 5}


def test_what_indexes_nothing_has_no_limit() -> None:
    assert limits([helper.make_node("Mul", ["x", "x"], ["y"])], {"x": [3]}, "y") == {}
