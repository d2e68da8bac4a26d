"""The kernels of a legalized network: calls of TensorIR functions, and the keys of their tasks."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.s_tir import meta_schedule as ms


def is_kernel_call(value: Any) -> bool:
    """Whether an expression calls a TensorIR function."""
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") == "relax.call_tir"


def kernel_calls(mod: tvm.IRModule) -> list[relax.Call]:
    """The calls of TensorIR functions, in program order."""
    bindings = (binding for block in mod["main"].body.blocks for binding in block.bindings)
    return [binding.value for binding in bindings if is_kernel_call(binding.value)]


def task_key(function: tvm.tirx.PrimFunc) -> str:
    """The key of a function's task: the structural hash of the module that TVM's task extraction makes of it."""
    return str(ms.utils.shash2hex(tvm.get_global_func("tvm.s_tir.meta_schedule.normalize_mod")(function)))
