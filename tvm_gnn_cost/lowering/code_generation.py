"""Builds TensorIR functions with TVM's passes and those of this package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tvm_gnn_cost.lowering.fast_math import lower_math
from tvm_gnn_cost.lowering.outlining import TAKES_POINTERS
from tvm_gnn_cost.lowering.threads import on_one_thread
from tvm_gnn_cost.lowering.vectors import more_vectors

#: Name of the pipeline of passes.
_PIPELINE = "tvm_gnn_cost"


def build(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
    """Builds a module of TensorIR functions as ``tvm.tirx.build`` does, with more of it in vectors.

    Small functions run on one thread.

    Args:
        mod: The module.
        target: The target; for any but a CPU, this is TVM's build.
    """
    if target.kind.name != "llvm":
        return tvm.tirx.build(mod, target)
    tvm.tirx.register_tir_pipeline(_PIPELINE, _pipeline)
    return tvm.tirx.build(mod, target, pipeline=_PIPELINE)


def _pipeline() -> tuple[Any, Callable[[], Any], Callable[[], Any]]:
    """TVM's passes, and those of this package before and after them."""
    passes, host, device = tvm.tirx.get_tir_pipeline("s_tir")
    first, second, last, at_end = (
        tvm.tirx.transform.prim_func_pass(lambda function, _, __, change=change: change(function), opt_level=0)
        for change in (on_one_thread, _without_rsqrt, lower_math, _with_end)
    )
    return (
        tvm.ir.transform.Sequential([first, second, more_vectors(), passes]),
        lambda: tvm.ir.transform.Sequential([last, at_end, host()]),
        device,
    )


def _without_rsqrt(function: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    """A function without ``rsqrt``, whose loops TVM does not vectorize."""

    def replaced(call: Any) -> Any:
        if getattr(call.op, "name", "") != "tirx.rsqrt":
            return call
        return tirx.const(1, call.ty.dtype) / tirx.sqrt(call.args[0])

    return tvm_ffi.structural_map(function, (tvm.ir.Call, replaced))


def _with_end(function: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    """A function of pointers with the device on which it allocates memory, which others take from their tensors.

    It returns 0. TVM frees what the body allocates at the end of the body, which is before the return only if the body
    is a statement of its own.
    """
    if not function.attrs or TAKES_POINTERS not in function.attrs:
        return function
    body = function.body
    for key, number in (("device_type", tvm.cpu().dlpack_device_type()), ("device_id", 0)):
        body = tirx.AttrStmt("default", key, tirx.const(number, "int32"), body)
    return function.with_body(tirx.SeqStmt([body, tirx.Return(tirx.const(0, "int32"))]))
