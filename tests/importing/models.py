"""Small ONNX models made by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

#: What a test of the simplifier keeps; there is a rule for each.
PRIMITIVES = ("Add", "Mul", "Sub", "Relu", "MatMul", "Reshape", "Concat", "Gather", "Slice", "Where", "Unsqueeze")


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, Sequence[int]],
    outputs: Sequence[str],
    weights: Mapping[str, Any] | None = None,
    opset: int = 18,
    dtype: int = onnx.TensorProto.FLOAT,
) -> onnx.ModelProto:
    """A model of inputs of one type."""
    graph = helper.make_graph(
        list(nodes),
        "graph",
        [helper.make_tensor_value_info(name, dtype, list(shape)) for name, shape in inputs.items()],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def body(
    nodes: Sequence[onnx.NodeProto], inputs: Sequence[str], outputs: Sequence[str], name: str = "body"
) -> onnx.GraphProto:
    """A graph inside of an operator."""
    return helper.make_graph(
        list(nodes),
        name,
        [onnx.ValueInfoProto(name=operand) for operand in inputs],
        [onnx.ValueInfoProto(name=output) for output in outputs],
    )
