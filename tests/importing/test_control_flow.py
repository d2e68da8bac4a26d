from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.importing.models import PRIMITIVES, body, model
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.importing.control_flow import EXPANSIONS
from tvm_gnn_cost.importing.graph import Graph
from tvm_gnn_cost.importing.simplify import simplify

ONE, TRUE = np.array(1.0, np.float32), np.array(True)


def simplified(nodes: list[onnx.NodeProto], outputs: list[str], inputs: dict[str, Any] | None = None) -> Graph:
    weights = {
        "one": ONE,
        "true": TRUE,
        "three": np.array(3),
        "zero": np.array(0),
        "rows": np.array([1, 1], np.int64),
        "many": np.array(5000),
    }
    return simplify(model(nodes, inputs or {"x": [2, 3]}, outputs, weights), "net", PRIMITIVES, EXPANSIONS)


def operators(graph: Graph) -> list[str]:
    return [node.operator for node in graph.nodes]


def branches(condition: str) -> onnx.NodeProto:
    then = body([helper.make_node("Relu", ["x"], ["a"])], [], ["a"])
    other = body([helper.make_node("Mul", ["x", "one"], ["b"])], [], ["b"])
    return helper.make_node("If", [condition], ["y"], then_branch=then, else_branch=other)


def test_a_known_condition_chooses_the_branch() -> None:
    assert operators(simplified([branches("true")], ["y"])) == ["Relu"]
    sized = [
        helper.make_node("Size", ["x"], ["size"]),
        helper.make_node("Equal", ["size", "three"], ["is_three"]),
        branches("is_three"),
    ]
    assert operators(simplified(sized, ["y"])) == ["Mul"]


def test_of_an_unknown_condition_both_branches_are_computed() -> None:
    made = model([branches("c")], {"x": [2, 3]}, ["y"], {"one": ONE})
    made.graph.input.append(helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []))
    graph = simplify(made, "net", PRIMITIVES, EXPANSIONS)
    assert sorted(set(operators(graph)) - {"Reshape"}) == ["Mul", "Relu", "Where"]


def test_of_a_branch_that_cannot_be_imported_the_condition_is_named() -> None:
    node = branches("c")
    other = body([helper.make_node("NonZero", ["x"], ["b"])], [], ["b"])
    node.attribute[1].g.CopyFrom(other)
    made = model([node], {"x": [2, 3]}, ["y"], {"one": ONE})
    made.graph.input.append(helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []))
    with pytest.raises(InputError, match=r"operator NonZero .*; operator If .* make its condition a constant"):
        simplify(made, "net", PRIMITIVES, EXPANSIONS)


def loop(count: str) -> onnx.NodeProto:
    inner = body(
        [
            helper.make_node("Identity", ["going"], ["still"]),
            helper.make_node("Add", ["state", "x"], ["next"]),
            helper.make_node("Mul", ["next", "one"], ["each"]),
        ],
        ["number", "going", "state"],
        ["still", "next", "each"],
    )
    return helper.make_node("Loop", [count, "true", "x"], ["last", "all"], body=inner)


def test_a_loop_of_known_length_is_written_out() -> None:
    graph = simplified([loop("three")], ["last", "all"])
    assert operators(graph).count("Add") == 3
    last, every = (value for _, value in graph.outputs)
    assert (last.shape, every.shape) == ((2, 3), (3, 2, 3))


@pytest.mark.parametrize(("count", "reason"), [("many", "more than 2048 iterations"), ("zero", "no iteration")])
def test_a_loop_that_cannot_be_written_out_is_named(count: str, reason: str) -> None:
    with pytest.raises(InputError, match=rf"operator Loop .*{reason}"):
        simplified([loop(count)], ["last", "all"])


def test_a_scan_is_written_out() -> None:
    inner = body(
        [helper.make_node("Add", ["state", "row"], ["next"]), helper.make_node("Relu", ["next"], ["each"])],
        ["state", "row"],
        ["next", "each"],
    )
    node = helper.make_node("Scan", ["s", "x"], ["last", "all"], body=inner, num_scan_inputs=1)
    graph = simplified([node], ["last", "all"], {"s": [3], "x": [2, 3]})
    assert operators(graph).count("Add") == 2
    assert graph.outputs[1][1].shape == (2, 3)


def test_sequences_are_lists() -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["x", "rows"], ["parts"], axis=0),
        helper.make_node("SequenceLength", ["parts"], ["count"]),
        helper.make_node("SequenceAt", ["parts", "zero"], ["first"]),
        helper.make_node("SequenceInsert", ["parts", "first"], ["more"]),
        helper.make_node("SequenceErase", ["more", "zero"], ["fewer"]),
        helper.make_node("ConcatFromSequence", ["fewer"], ["y"], axis=1),
    ]
    graph = simplified(nodes, ["y", "count"])
    assert graph.outputs[0][1].shape == (1, 6)
    assert graph.outputs[1][1] == 2
    with pytest.raises(InputError, match="'parts' is not a tensor"):
        simplified(nodes, ["parts"])


def test_a_negative_place_is_before_the_last_value() -> None:
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["pair"]),
        helper.make_node("Relu", ["x"], ["between"]),
        helper.make_node("SequenceInsert", ["pair", "between", "minus"], ["more"]),
        helper.make_node("SequenceAt", ["more", "second"], ["y"]),
    ]
    graph = simplified([helper.make_node("Constant", [], ["minus"], value_int=-1),
                        helper.make_node("Constant", [], ["second"], value_int=1), *nodes], ["y"])  # fmt: skip
    assert operators(graph) == ["Relu"]
