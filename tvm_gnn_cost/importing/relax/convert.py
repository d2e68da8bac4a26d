"""Converts a graph of primitive operators to Relax."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy.typing as npt
import tvm
from tvm import relax

from tvm_gnn_cost.datasets.records import last_line
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.importing.graph import Graph, Node, Tensor
from tvm_gnn_cost.importing.relax.rules import HALF, RULES, Primitive, Unsupported, constant
from tvm_gnn_cost.importing.simplify import refusal


def to_relax(graph: Graph, name: str) -> tvm.IRModule:
    """Converts a graph to a Relax function ``main`` with its weights as constants.

    Args:
        graph: The graph; there is a rule for each operator.
        name: The network's name, for errors.

    Raises:
        InputError: a rule does not cover the use of an operator; the message names all of them.
    """
    builder = relax.BlockBuilder()
    parameters = _parameters(graph.inputs)
    expressions: dict[Tensor, relax.Expr] = dict(zip(graph.inputs, parameters, strict=True))
    refused: dict[tuple[str, str], list[str]] = {}
    with builder.function("main", parameters):
        with builder.dataflow():
            for node in graph.nodes:
                try:
                    values = _written(node, builder, expressions)
                except Unsupported as error:
                    refused.setdefault((node.operator, str(error)), []).append(node.name)
                    values = [relax.op.zeros(output.shape, str(output.dtype)) for output in node.outputs]
                for tensor, expression in zip(node.outputs, values, strict=True):
                    if tensor.name:
                        expressions[tensor] = builder.emit(expression)
            outputs = [
                builder.emit_output(
                    expressions[item] if isinstance(item, Tensor) else _constant_output(item, parameters, builder, name)
                )
                for _, item in graph.outputs
            ]
        builder.emit_func_output(outputs[0] if len(outputs) == 1 else relax.Tuple(outputs))
    if refused:
        raise InputError(refusal(name, refused))
    return builder.get()


def _written(node: Node, builder: relax.BlockBuilder, expressions: dict[Tensor, relax.Expr]) -> list[relax.Expr]:
    """The outputs of an operator, with the types that ONNX infers.

    Raises:
        Unsupported: the rule does not cover this use, or its result has another type or shape.
    """
    rule = RULES[node.operator]
    primitive = Primitive(node, builder, expressions, rule.moves)
    # TVM checks operands, and raises errors of any type.
    try:
        result = rule.write(primitive)
    except Unsupported:
        raise
    except Exception as error:
        raise Unsupported(f"TVM does not support it ({last_line(error)})") from error
    values = list(result) if isinstance(result, list | tuple) else [result]
    outputs = []
    for position, tensor in enumerate(node.outputs):
        if not tensor.name:
            outputs.append(relax.Tuple([]))
            continue
        if position >= len(values) or values[position] is None:
            raise Unsupported(f"its output {position} is not computed")
        outputs.append(_typed(values[position], tensor, builder))
    return outputs


def _typed(expression: relax.Expr, wanted: Tensor, builder: relax.BlockBuilder) -> relax.Expr:
    """Casts float32 to the 16-bit type that ONNX infers; any other deviation of shape or type is an error."""
    normalized = builder.normalize(expression)
    shape = tuple(int(size) for size in normalized.ty.shape)
    dtype = str(normalized.ty.dtype)
    if shape != wanted.shape:
        raise Unsupported(f"its output would have the shape {shape}, not {wanted.shape}")
    if dtype == str(wanted.dtype):
        return normalized
    if wanted.dtype in HALF and dtype == "float32":
        return relax.op.astype(normalized, str(wanted.dtype))
    raise Unsupported(f"its output would be {dtype}, not {wanted.dtype}")


def _constant_output(
    array: npt.NDArray[Any], parameters: list[relax.Var], builder: relax.BlockBuilder, name: str
) -> relax.Expr:
    """A constant output; an empty one is sliced from an input: TVM cannot read empty constants back from a library."""
    if array.size:
        return constant(array)
    whole = next((parameter for parameter in parameters if 0 not in [int(size) for size in parameter.ty.shape]), None)
    if whole is None:
        raise InputError(f"{name} has no inputs, and no output with elements")
    count = math.prod(int(size) for size in whole.ty.shape)
    flat = builder.emit(relax.op.reshape(whole, [count]))
    first = builder.emit(relax.op.strided_slice(flat, [0], [0], [1]))
    typed = builder.emit(relax.op.astype(first, str(array.dtype)))
    wide = builder.emit(relax.op.broadcast_to(typed, [max(1, int(size)) for size in array.shape]))
    empty = [axis for axis, size in enumerate(array.shape) if size == 0]
    return relax.op.strided_slice(wide, empty, [0] * len(empty), [0] * len(empty))


def _parameters(inputs: tuple[Tensor, ...]) -> list[relax.Var]:
    """The function's parameters, named after the inputs with characters that TVM accepts."""
    taken: set[str] = set()
    parameters = []
    for tensor in inputs:
        name = re.sub(r"\W", "_", tensor.name) or "input"
        while name in taken:
            name += "_"
        taken.add(name)
        parameters.append(relax.Var(name, relax.TensorType(tensor.shape, str(tensor.dtype))))
    return parameters
