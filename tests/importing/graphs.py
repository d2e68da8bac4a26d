"""Computes simplified graphs with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.importing.relax.against_onnxruntime import reference
from tvm_gnn_cost.importing.graph import Graph, Tensor


def computed(graph: Graph, inputs: Mapping[str, Any], opset: int = 18) -> Sequence[Any]:
    """The outputs of a graph.

    Args:
        graph: A graph whose operators are ONNX's own.
        inputs: Its inputs by name.
        opset: Of its operators.
    """
    names: dict[Tensor, str] = {operand: operand.name for operand in graph.inputs}
    weights: list[onnx.TensorProto] = []

    def name_of(operand: Any) -> str:
        if operand is None:
            return ""
        if isinstance(operand, Tensor):
            return names.setdefault(operand, f"t{len(names)}")
        weights.append(numpy_helper.from_array(np.asarray(operand), f"w{len(weights)}"))
        return str(weights[-1].name)

    nodes = []
    for node in graph.nodes:
        attributes = {name: value for name, value in node.attributes.items() if value is not None}
        operands = [name_of(operand) for operand in node.inputs]
        nodes.append(
            helper.make_node(node.operator, operands, [name_of(output) for output in node.outputs], **attributes)
        )
    for number, (_, output) in enumerate(graph.outputs):
        nodes.append(helper.make_node("Identity", [name_of(output)], [f"output{number}"]))
    given = [
        helper.make_tensor_value_info(operand.name, helper.np_dtype_to_tensor_dtype(operand.dtype), operand.shape)
        for operand in graph.inputs
    ]
    outputs = [onnx.ValueInfoProto(name=f"output{number}") for number in range(len(graph.outputs))]
    whole = helper.make_graph(nodes, "graph", given, outputs, weights)
    model = helper.make_model(whole, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return reference(model, {operand.name: inputs[operand.name] for operand in graph.inputs})
