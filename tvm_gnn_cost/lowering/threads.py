"""Runs small functions on one thread."""

from __future__ import annotations

import math
from typing import Any

import tvm
import tvm_ffi
from tvm.s_tir import SBlock
from tvm.tirx import Add, BufferStore, For, ForKind, IntImm, Mul

#: Iterations of a function's largest block up to which it runs on one thread. In vectors these take up to 0.4
#: microseconds, and starting and ending a parallel loop takes 0.8, and more where the threads sleep or are interrupted
#: (``benchmarks/kernel_overhead.py``).
_SMALL = 4096

#: Multiplications with additions in vectors that take as long as one iteration, with their factors in a cache.
_PRODUCTS = 16


def on_one_thread(function: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    """A function with serial loops instead of parallel ones if it is small; else the function."""
    return function if work(function) > _SMALL else tvm_ffi.structural_map(function, (For, _serial))


def work(function: tvm.tirx.PrimFunc) -> float:
    """Iterations of a function's largest block, those of a product in vectors divided; infinite if unknown."""
    loops: list[Any] = []
    tvm_ffi.structural_walk(function.body, [(For, loops.append)])
    products = [
        block
        for loop in loops
        if loop.kind == ForKind.VECTORIZED
        for block in _blocks(loop.body)
        if isinstance(block.body, BufferStore)
        and isinstance(block.body.value, Add)
        and isinstance(block.body.value.b, Mul)
    ]
    sizes = [
        _iterations(block) / (_PRODUCTS if any(block.same_as(product) for product in products) else 1)
        for block in _blocks(function.body)
    ]
    return max(sizes, default=math.inf)


def _blocks(body: Any) -> list[Any]:
    blocks: list[Any] = []
    tvm_ffi.structural_walk(body, [(SBlock, blocks.append)])
    return blocks


def _iterations(block: Any) -> float:
    """Iterations of a block; infinite if unknown."""
    extents = [var.dom.extent for var in block.iter_vars]
    return math.prod(map(int, extents)) if all(isinstance(extent, IntImm) for extent in extents) else math.inf


def _serial(loop: For) -> For:
    if loop.kind != ForKind.PARALLEL:
        return loop
    return For(
        loop.loop_var,
        loop.min,
        loop.extent,
        ForKind.SERIAL,
        loop.body,
        loop.thread_binding,
        loop.annotations,
        loop.step,
        loop.span,
    )
