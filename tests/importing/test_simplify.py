from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.importing.models import PRIMITIVES, model
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.importing.control_flow import EXPANSIONS
from tvm_gnn_cost.importing.graph import Graph, Tensor
from tvm_gnn_cost.importing.simplify import simplify


def simplified(made: onnx.ModelProto, *more: str, seconds: float = 60.0) -> Graph:
    return simplify(made, "net", (*PRIMITIVES, *more), EXPANSIONS, seconds)


def operators(graph: Graph) -> list[str]:
    return [node.operator for node in graph.nodes]


def test_constants_are_computed_and_unread_operators_left_out() -> None:
    nodes = [
        helper.make_node("Transpose", ["w"], ["turned"]),
        helper.make_node("MatMul", ["x", "turned"], ["product"]),
        helper.make_node("Relu", ["product"], ["y"]),
        helper.make_node("Mul", ["x", "x"], ["unread"]),
    ]
    weights = np.arange(12, dtype=np.float32).reshape(4, 3)
    graph = simplified(model(nodes, {"x": [2, 3]}, ["y"], {"w": weights}))
    assert operators(graph) == ["MatMul", "Relu"]
    constant = graph.nodes[0].inputs[1]
    assert isinstance(constant, np.ndarray)
    np.testing.assert_array_equal(constant, weights.T)
    assert graph.inputs == (Tensor("x", np.dtype(np.float32), (2, 3)),) or graph.inputs[0].shape == (2, 3)


def test_sizes_are_constants() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["rows"]),
        helper.make_node("Concat", ["rows", "rest"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["x", "wanted"], ["y"]),
    ]
    weights = {"zero": np.array([0]), "rest": np.array([-1])}
    graph = simplified(model(nodes, {"x": [2, 3, 4]}, ["y"], weights))
    assert operators(graph) == ["Reshape"]
    assert graph.nodes[0].outputs[0].shape == (2, 12)


def test_a_composite_operator_is_replaced_by_onnxs_definition() -> None:
    nodes = [helper.make_node("HardSwish", ["x"], ["y"], name="activation")]
    graph = simplified(model(nodes, {"x": [4]}, ["y"]), "Clip", "Div", "Max", "Min", "HardSigmoid")
    assert "HardSwish" not in operators(graph)
    assert {node.name for node in graph.nodes} == {"activation"}


def test_outputs_may_be_inputs_constants_and_the_same() -> None:
    nodes = [helper.make_node("Identity", ["x"], ["same"]), helper.make_node("Identity", ["w"], ["constant"])]
    graph = simplified(model(nodes, {"x": [2]}, ["same", "constant", "same"], {"w": np.ones(3)}))
    assert graph.nodes == ()
    assert [name for name, _ in graph.outputs] == ["same", "constant", "same"]
    assert graph.outputs[0][1] is graph.inputs[0]


def test_tensors_without_elements_are_constants() -> None:
    nodes = [helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)]
    graph = simplified(model(nodes, {"x": [0, 3]}, ["y"]), "ReduceSum")
    assert graph.nodes == ()
    assert graph.outputs[0][1] == 0


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (
            helper.make_node("NonZero", ["x"], ["y"], name="find"),
            r"operator NonZero \('find'\): there is no rule for it",
        ),
        (helper.make_node("RandomNormalLike", ["x"], ["y"]), r"RandomNormalLike \('y'\): its result is random"),
        (
            helper.make_node("Thing", ["x"], ["y"], domain="my.own"),
            r"operator Thing \('y'\): there is no rule for it, which is of",
        ),
        (helper.make_node("Relu", ["z"], ["y"]), r"it reads 'z', which nothing computes"),
        (helper.make_node("MatMul", ["x", "x"], ["y"]), r"MatMul \('y'\): it is invalid by ONNX's shape inference"),
    ],
)
def test_what_cannot_be_imported_is_named(node: onnx.NodeProto, reason: str) -> None:
    made = model([node], {"x": [2, 3]}, ["y"])
    made.opset_import.append(helper.make_opsetid("my.own", 1))
    with pytest.raises(InputError, match=f"^net cannot be imported: .*{reason}.*export the network without them"):
        simplified(made)


def test_all_missing_operators_are_named_at_once() -> None:
    nodes = [
        helper.make_node("Sin", ["x"], ["a"], name="one"),
        helper.make_node("Sin", ["a"], ["b"], name="two"),
        helper.make_node("Cos", ["b"], ["y"], name="three"),
    ]
    with pytest.raises(InputError, match=r"Sin \('one' and 1 more\): .*; operator Cos \('three'\)"):
        simplified(model(nodes, {"x": [2]}, ["y"]))


def test_a_size_that_depends_on_values_is_named() -> None:
    nodes = [helper.make_node("Reshape", ["x", "shape"], ["y"], name="turn")]
    made = model(nodes, {"x": [4]}, ["y"])
    made.graph.input.append(helper.make_tensor_value_info("shape", onnx.TensorProto.INT64, [2]))
    with pytest.raises(InputError, match=r"Reshape \('turn'\): the size of its output depends on values"):
        simplified(made)


def test_a_tensor_that_no_memory_holds_is_named() -> None:
    nodes = [helper.make_node("Concat", ["x"] * 3000, ["y"], axis=0)]
    with pytest.raises(InputError, match="elements"):
        simplified(model(nodes, {"x": [1000, 1000]}, ["y"]))


def test_importing_ends_in_time_and_says_where_it_was() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"], name="late")]
    with pytest.raises(InputError, match=r"importing took too long, at Relu 'late'"):
        simplified(model(nodes, {"x": [2]}, ["y"]), seconds=-1.0)


def test_an_old_operator_has_the_definition_of_a_newer_one() -> None:
    nodes = [helper.make_node("Selu", ["x"], ["y"])]
    kept: tuple[Any, ...] = ("Exp", "Less", "Cast", "CastLike", "Elu")
    assert simplified(model(nodes, {"x": [2]}, ["y"], opset=9), *kept).nodes


@pytest.mark.parametrize("opset", [0, 99])
def test_operator_sets_that_nobody_knows_are_refused(opset: int) -> None:
    made = model([helper.make_node("Relu", ["x"], ["y"])], {"x": [2]}, ["y"])
    made.opset_import[0].version = opset
    with pytest.raises(InputError, match=f"net is of ONNX's operator set {opset}, and the installed onnx knows 1 to"):
        simplified(made)


def test_damaged_weights_strings_and_no_outputs_are_named() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    cut = model(nodes, {"x": [2]}, ["y"], {"w": np.ones(3, np.float32)})
    cut.graph.initializer[0].raw_data = b"12"
    with pytest.raises(InputError, match="weight 'w' is damaged: "):
        simplified(cut)
    with pytest.raises(InputError, match="input 'x' of net cannot be imported: its type is string"):
        simplified(model(nodes, {"x": [2]}, ["y"], dtype=onnx.TensorProto.STRING))
    with pytest.raises(InputError, match="net has no output"):
        simplified(model(nodes, {"x": [2]}, []))
