"""ONNX models: loading without executing code, fixing shapes, and running them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.importing.inputs import OpenShape

if TYPE_CHECKING:
    import onnx

#: Operators that multiply uint8 by int8, which ONNX Runtime adds up in saturated int16 on x86 without VNNI. Its
#: ``ConvInteger`` is exact.
_BYTE_PRODUCTS = (
    *("DynamicQuantizeLSTM", "DynamicQuantizeMatMul", "MatMulInteger", "MatMulIntegerToFloat"),
    *("QAttention", "QGemm", "QLinearConv", "QLinearMatMul"),
)


def read_onnx(path: Path) -> onnx.ModelProto:
    """Loads an ONNX file with its external weights.

    Raises:
        InputError: it is not an ONNX file, its weights are outside of its folder, or ``onnx`` is not installed.
        FileNotFoundError: there is no such file.
    """
    package = _onnx()
    from google.protobuf.message import DecodeError

    # A damaged protobuf, or external weights that are missing, truncated or outside of the folder.
    broken = (DecodeError, ValueError, package.checker.ValidationError)
    try:
        model: onnx.ModelProto = package.load(path, load_external_data=False)
        if not model.HasField("graph"):
            raise ValueError("it has no graph")
        for tensor in package.external_data_helper._get_all_tensors(model):
            if package.external_data_helper.uses_external_data(tensor):
                _check_beside(path, tensor)
        package.load_external_data_for_model(model, str(path.parent))
        return model
    except broken as error:
        raise InputError(f"{path} is not a complete ONNX file: {' '.join(str(error).split())}") from error


def accepts(program: Any) -> bool:
    """Whether a program is an ``onnx.ModelProto``; works without ``onnx``."""
    return type(program).__name__ == "ModelProto"


def open_shapes(program: onnx.ModelProto, name: str) -> dict[str, OpenShape]:
    """The shape of each input, in the graph's order.

    Raises:
        InputError: an input is not a tensor, or its rank is unknown.
    """
    result = {}
    for value in _inputs(program):
        if not value.type.tensor_type.HasField("shape"):
            raise InputError(f"input '{value.name}' of {name} is not a tensor of known rank")
        result[value.name] = tuple(
            # Some exporters write 0 or -1 for a dynamic dimension, and "?" for the name of each.
            int(item.dim_value) if item.dim_value > 0 else _size_name(item.dim_param) or f"{value.name}[{axis}]"
            for axis, item in enumerate(value.type.tensor_type.shape.dim)
        )
    return result


def with_shapes(program: onnx.ModelProto, shapes: Mapping[str, tuple[int, ...]], name: str) -> onnx.ModelProto:  # noqa: ARG001
    """A copy with static input shapes and inlined local functions.

    Exporters keep a layer as a local function, which TVM's importers do not support.
    """
    model = _copy(program)
    if model.functions:
        model = _onnx().inliner.inline_local_functions(model)
    for value in _inputs(model):
        for dimension, size in zip(value.type.tensor_type.shape.dim, shapes[value.name], strict=True):
            dimension.dim_value = size
    return model


def input_types(program: onnx.ModelProto, name: str) -> dict[str, np.dtype[Any]]:  # noqa: ARG001
    """The type of each input."""
    of_numpy = _onnx().helper.tensor_dtype_to_np_dtype
    return {value.name: np.dtype(of_numpy(value.type.tensor_type.elem_type)) for value in _inputs(program)}


def run(program: onnx.ModelProto, inputs: Mapping[str, npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], ...] | None:
    """The outputs of ONNX Runtime without optimizations, or of ``onnx``'s reference evaluator.

    None if neither can run the model. Models that multiply uint8 by int8 run with the optimizations
    that make these products exact on x86 without VNNI.
    """
    for evaluate in (partial(_run_in_onnxruntime, optimized=False), _run_in_evaluator):
        # Both raise errors of any type for unsupported operators, versions or types, and for more than 2 GiB of
        # weights.
        try:
            outputs = evaluate(program, dict(inputs))
        except Exception:
            continue
        return tuple(np.asarray(output) for output in outputs)
    return None


def run_again(program: onnx.ModelProto, inputs: Sequence[npt.NDArray[Any]]) -> tuple[npt.NDArray[Any], ...] | None:
    """The outputs of ONNX Runtime with its optimizations; None if it cannot run the model."""
    names = [value.name for value in _inputs(program)]
    try:
        outputs = _run_in_onnxruntime(program, dict(zip(names, inputs, strict=True)), optimized=True)
    except Exception:
        return None
    return tuple(np.asarray(output) for output in outputs)


def to_onnx(program: onnx.ModelProto, name: str) -> onnx.ModelProto:  # noqa: ARG001
    """The model itself."""
    return program


def digest(program: onnx.ModelProto) -> str:
    """SHA-256 of the graph and its weights, which may exceed the size limit of a protobuf."""
    digest = hashlib.sha256()
    graph = program.graph
    for opset in (*program.opset_import, *graph.input, *graph.output, *graph.node, *graph.initializer):
        digest.update(opset.SerializeToString(deterministic=True))
    return digest.hexdigest()


def _run_in_onnxruntime(model: onnx.ModelProto, inputs: dict[str, Any], *, optimized: bool) -> list[Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised anyway
    levels = onnxruntime.GraphOptimizationLevel
    # It makes uint8 of int8 weights, and so exact sums, among the optimizations of the level EXTENDED and not before.
    options.add_session_config_entry("session.x64quantprecision", "1")
    if optimized:
        options.graph_optimization_level = levels.ORT_ENABLE_ALL
    elif _has_byte_products(model.graph.node):
        options.graph_optimization_level = levels.ORT_ENABLE_EXTENDED
    else:
        options.graph_optimization_level = levels.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


def _has_byte_products(nodes: Iterable[onnx.NodeProto]) -> bool:
    """Whether a graph or a branch or loop of it has one of `_BYTE_PRODUCTS`."""
    return any(
        node.op_type in _BYTE_PRODUCTS or any(_has_byte_products(attribute.g.node) for attribute in node.attribute)
        for node in nodes
    )


def _run_in_evaluator(model: onnx.ModelProto, inputs: dict[str, Any]) -> list[Any]:
    from onnx.reference import ReferenceEvaluator

    return list(ReferenceEvaluator(model).run(None, inputs))


def _size_name(name: str) -> str:
    """The name of a dynamic dimension; empty for an anonymous one."""
    return name if any(item.isalpha() for item in name) and name not in ("None", "unk", "unknown") else ""


def _onnx() -> Any:
    """Imports ``onnx``, which is an extra."""
    try:
        import onnx
        import onnx.external_data_helper
        import onnx.inliner
    except ImportError as error:
        raise InputError(f"ONNX files need the package onnx: pip install 'tvm-gnn-cost[onnx]' ({error})") from error
    return onnx


def _check_beside(path: Path, tensor: onnx.TensorProto) -> None:
    """Refuses external weights outside of the model's folder; some versions of ``onnx`` accept them."""
    location = next((entry.value for entry in tensor.external_data if entry.key == "location"), "")
    folder = path.parent.resolve()
    if not location or not (folder / location).resolve().is_relative_to(folder):
        raise ValueError(f"its weight '{tensor.name}' is in '{location}', outside of its folder")


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copied = type(model)()
    copied.CopyFrom(model)
    return copied


def _inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """The inputs without initializers, which files before 2019 list among the inputs too."""
    weights = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in weights]
