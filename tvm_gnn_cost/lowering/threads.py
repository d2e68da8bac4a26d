"""Runs small functions on one thread."""

from __future__ import annotations

import math
from typing import Any

import tvm
import tvm_ffi
from tvm.s_tir import SBlock
from tvm.tirx import For, ForKind

#: Iterations of a function's largest block up to which it runs on one thread. In vectors these take up to 0.4
#: microseconds, and starting and ending a parallel loop takes 0.8, and more where the threads sleep or are interrupted
#: (``benchmarks/kernel_overhead.py``).
_SMALL = 4096


def on_one_thread(function: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    """A function with serial loops instead of parallel ones if it is small; else the function."""
    blocks: list[Any] = []
    tvm_ffi.structural_walk(function.body, [(SBlock, blocks.append)])
    extents = [[var.dom.extent for var in block.iter_vars] for block in blocks]
    known = all(isinstance(extent, tvm.tirx.IntImm) for block in extents for extent in block)
    if not known or max((math.prod(map(int, block)) for block in extents), default=math.inf) > _SMALL:
        return function
    return tvm_ffi.structural_map(function, (For, _serial))


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
