"""Small programs that build and run, crash, or cannot be built."""

from __future__ import annotations

import tvm
from tvm import tirx
from tvm.s_tir import meta_schedule as ms
from tvm.script import tirx as T


@T.prim_func(s_tir=True)
def add_one(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
    for i in range(16):
        with T.sblock("b"):
            v = T.axis.spatial(16, i)
            b[v] = a[v] + T.float32(1)


@T.prim_func(s_tir=True)
def abort(_a: T.Buffer((16,), "float32")):
    T.evaluate(T.call_extern("int32", "abort"))


@T.prim_func(s_tir=True)
def on_a_gpu(a: T.Buffer((16,), "float32"), b: T.Buffer((16,), "float32")):
    for i in T.thread_binding(16, thread="threadIdx.x"):
        with T.sblock("b"):
            v = T.axis.spatial(16, i)
            b[v] = a[v] + T.float32(1)


def candidate(func: tirx.PrimFunc) -> ms.MeasureCandidate:
    mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
    return ms.MeasureCandidate(tvm.s_tir.Schedule(mod), ms.arg_info.ArgInfo.from_entry_func(mod, False))


def good() -> ms.MeasureCandidate:
    """Adds 1 to 16 numbers."""
    return candidate(add_one)


def crashing() -> ms.MeasureCandidate:
    """Ends its process."""
    return candidate(abort)


def broken() -> ms.MeasureCandidate:
    """Cannot be built: a CPU has no such threads."""
    return candidate(on_a_gpu)
