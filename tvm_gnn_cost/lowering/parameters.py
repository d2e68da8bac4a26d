"""Analyzes the parameters of a TensorIR function, so that it can be run on valid arguments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm.ir import Call
from tvm.ir.prim import expr as prim
from tvm.s_tir import SBlock
from tvm.tirx import BufferStore, IterVar

from tvm_gnn_cost.measuring.arguments import Argument

#: TVM's functions that convert floats to integers, without namespaces.
_ROUNDINGS = {"round", "nearbyint", "floor", "ceil", "trunc", "fmod"}

_COMPARISONS = (prim.LT, prim.LE, prim.GT, prim.GE, prim.EQ, prim.NE)


@dataclass(frozen=True)
class Parameters:
    """The parameters of a function, and properties that bound its rounding errors.

    Attributes:
        arguments: Each parameter.
        dtypes: The types of all values that it reads and writes.
        terms: Length of its longest reduction.
        work: Iterations of the block with the most iterations.
        rounds: Whether floats are converted to integers or compared, so that small differences can become large.
    """

    arguments: tuple[Argument, ...]
    dtypes: tuple[str, ...]
    terms: int
    work: int
    rounds: bool


def parameters(function: tvm.tirx.PrimFunc) -> Parameters:
    """Analyzes how a function uses its parameters.

    An integer parameter is an index if another buffer is accessed at its value or at a value computed from it. It is
    bounded by the smallest dimension that it indexes.
    """
    stores: list[Any] = []
    blocks: list[Any] = []
    loads: list[Any] = []
    others: list[Any] = []
    tvm_ffi.structural_walk(
        function.body,
        [
            (BufferStore, stores.append),
            (SBlock, blocks.append),
            (tvm.ir.TensorLoad, loads.append),
            ((Call, prim.Cast, *_COMPARISONS), others.append),
        ],
    )
    written = [store.buffer for store in stores]
    # The outputs of an extern function are declared; without a declaration, it is the last parameter.
    written += [region.source for block in blocks if block.name_hint != "root" for region in block.writes]
    if not any(item.same_as(param) for item in written for param in function.params):
        written.append(function.params[-1])
    dtypes = {_dtype(load.source) for load in loads} | {_dtype(item) for item in written}
    arguments = []
    for param in function.params:
        dtype = _dtype(param)
        is_written = any(item.same_as(param) for item in written)
        bound = 0 if is_written or not dtype.startswith(("int", "uint")) else _bound(param, stores, loads)
        arguments.append(Argument(dtype, tuple(int(size) for size in param.shape), bound, is_written))
    known = [b for b in blocks if all(isinstance(var.dom.extent, tvm.tirx.IntImm) for var in b.iter_vars)]
    return Parameters(
        tuple(arguments),
        tuple(sorted(dtypes)),
        max((_iterations(block, (IterVar.CommReduce,)) for block in known), default=1),
        max((_iterations(block, (IterVar.CommReduce, IterVar.DataPar)) for block in known), default=1),
        any(map(_rounds, others)),
    )


def _iterations(block: Any, kinds: tuple[int, ...]) -> int:
    return math.prod(int(var.dom.extent) for var in block.iter_vars if var.iter_type in kinds)


def _rounds(expression: Any) -> bool:
    """Whether an expression converts a float to an integer or compares floats."""
    if isinstance(expression, prim.Cast):
        return _is_float(expression.value) and not _is_float(expression)
    if isinstance(expression, Call):
        return getattr(expression.op, "name", "").rpartition(".")[2] in _ROUNDINGS
    return _is_float(expression.a)


def _is_float(expression: Any) -> bool:
    return str(expression.ty.dtype).startswith(("float", "bfloat"))


def _dtype(buffer: Any) -> str:
    return str(buffer.dtype)


def _bound(param: Any, stores: list[Any], loads: list[Any]) -> int:
    """The size of the smallest dimension that a parameter indexes; 0 if it is not an index."""
    known = [param]
    while True:
        results = [
            store.buffer
            for store in stores
            if _is_integer(store.buffer)
            and not any(store.buffer.same_as(item) for item in known)
            and _reads(store.value, known)
        ]
        if not results:
            break
        known.append(results[0])
    sizes = [
        int(size)
        for buffer, indices in [
            *((s.buffer, s.indices) for s in stores),
            *((load.source, load.indices) for load in loads),
        ]
        for index, size in zip(indices, buffer.shape, strict=True)
        if isinstance(size, tvm.tirx.IntImm) and _reads(index, known)
    ]
    return min(sizes, default=0)


def _is_integer(buffer: Any) -> bool:
    return _dtype(buffer).startswith(("int", "uint"))


def _reads(expression: Any, buffers: list[Any]) -> bool:
    """Whether an expression reads one of these buffers."""
    loads: list[Any] = []
    tvm_ffi.structural_walk(expression, [(tvm.ir.TensorLoad, loads.append)])
    return any(load.source.same_as(buffer) for load in loads for buffer in buffers)
