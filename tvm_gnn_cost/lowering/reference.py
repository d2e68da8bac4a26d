"""The program that others are compared with: a task's own, with large loops in an order that ends in good time."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import tvm
from tvm.s_tir import Schedule, ScheduleError
from tvm.tirx import ForKind, IntImm, IterVar

from tvm_gnn_cost.lowering.blocks import root_of

#: Iterations of a block up to which it stays as it is.
_FEW = 5_000_000


def reference(mod: tvm.IRModule) -> tvm.IRModule:
    """An unscheduled module, whose large blocks run on all cores, and go through contiguous memory if sums can.

    Nothing is moved, fused or packed: each block keeps its own loops and its own place. A convolution as TVM writes it
    takes a second and more, as its innermost loop jumps from one input channel of the weights to the next.
    """
    sch = Schedule(mod)
    for block in sch.get_child_blocks(root_of(sch)):
        with suppress(ScheduleError):
            _speed_up(sch, block)
    return sch.mod


def _speed_up(sch: Schedule, block: Any) -> None:
    loops, kinds = sch.get_loops(block), [var.iter_type for var in sch.get(block).iter_vars]
    extents = [sch.get(loop).extent for loop in loops]
    if len(loops) != len(kinds) or not all(isinstance(extent, IntImm) for extent in extents):
        return
    if any(int(sch.get(loop).kind) != ForKind.SERIAL for loop in loops) or math.prod(map(int, extents)) < _FEW:
        return
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == IterVar.DataPar]
    sums = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == IterVar.CommReduce]
    if len(spatial) + len(sums) < len(loops) or not spatial:
        return
    *outer, last = spatial
    if sums:
        sch.reorder(*outer, *sums, last)
        sch.decompose_reduction(block, sums[0])
    if outer:
        sch.parallel(sch.fuse(*outer))
