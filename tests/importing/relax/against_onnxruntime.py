"""Imports small ONNX models into Relax, compiles them with default schedules, and compares with ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper


def model_of(
    nodes: onnx.NodeProto | Sequence[onnx.NodeProto],
    inputs: Mapping[str, Any],
    constants: Mapping[str, Any] | None = None,
    opset: int = 21,
    domains: Mapping[str, int] | None = None,
) -> onnx.ModelProto:
    """A model of some operators: its outputs are those of the last one.

    Args:
        nodes: The operators, or one.
        inputs: Arrays whose types and sizes the model's inputs have.
        constants: Its weights.
        opset: Of ONNX's own operators.
        domains: Operator sets beside ONNX's own.
    """
    every = [nodes] if isinstance(nodes, onnx.NodeProto) else list(nodes)
    given = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(np.asarray(operand).dtype), np.shape(operand)
        )
        for name, operand in inputs.items()
    ]
    weights = [numpy_helper.from_array(np.asarray(constant), name) for name, constant in (constants or {}).items()]
    outputs = [onnx.ValueInfoProto(name=name) for name in every[-1].output if name]
    graph = helper.make_graph(every, "model", given, outputs, weights)
    imports = [helper.make_opsetid("", opset)] + [helper.make_opsetid(*item) for item in (domains or {}).items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=10)


def run(model: onnx.ModelProto, inputs: Mapping[str, Any]) -> list[np.ndarray[Any, Any]]:
    """The outputs of a model that is imported and compiled."""
    import tvm
    from tvm import relax

    from tvm_gnn_cost.importing.relax.importer import import_onnx
    from tvm_gnn_cost.schedulers.meta_schedule.target import local_target

    mod = import_onnx(model, "model")
    with local_target():
        mod = relax.get_pipeline("zero")(relax.transform.DecomposeOpsForInference()(mod))
    machine = relax.VirtualMachine(tvm.compile(mod, target=local_target()), tvm.cpu())
    result = machine["main"](*(tvm.runtime.tensor(np.array(operand, order="C")) for operand in inputs.values()))
    return [item.numpy() for item in ([result] if hasattr(result, "numpy") else result)]


def reference(model: onnx.ModelProto, inputs: Mapping[str, Any]) -> list[np.ndarray[Any, Any]]:
    """What ONNX Runtime computes, with exact products of uint8 and constant int8 on every processor."""
    onnxruntime = pytest.importorskip("onnxruntime")

    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 3, 1
    options.add_session_config_entry("session.x64quantprecision", "1")
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    result: list[np.ndarray[Any, Any]] = session.run(None, dict(inputs))
    return result


def check(
    model: onnx.ModelProto | onnx.NodeProto,
    inputs: Mapping[str, Any],
    rtol: float = 1e-5,
    atol: float = 1e-6,
    wanted: Sequence[Any] | None = None,
    **options: Any,
) -> None:
    """Compares types, sizes and values of all outputs.

    Args:
        model: A model, or an operator, of which :func:`model_of` makes one with ``options``.
        inputs: Its inputs by name, in order.
        rtol: Relative tolerance.
        atol: Absolute tolerance.
        wanted: The right outputs; ONNX Runtime's if it is None.
        options: Of :func:`model_of`.
    """
    whole = model if isinstance(model, onnx.ModelProto) else model_of(model, inputs, **options)
    right = reference(whole, inputs) if wanted is None else [np.asarray(item) for item in wanted]
    results = run(whole, inputs)
    assert len(results) == len(right)
    for actual, entry in zip(results, right, strict=True):
        assert (actual.dtype, actual.shape) == (entry.dtype, entry.shape)
        np.testing.assert_allclose(actual.astype(np.float64), entry.astype(np.float64), rtol=rtol, atol=atol)
