"""The reference program that candidates are verified against: the unscheduled task with parallel, reordered loops."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import tvm
from tvm.s_tir import Schedule, ScheduleError
from tvm.tirx import ForKind, IntImm, IterVar

from tvm_gnn_cost.lowering.blocks import root_of

#: Blocks with fewer iterations are not scheduled.
_FEW = 5_000_000


def reference(mod: tvm.IRModule) -> tvm.IRModule:
    """Parallelizes the large blocks of an unscheduled module, and reorders reductions for contiguous access.

    Nothing is moved, fused or packed. An unscheduled convolution takes more than a second, because its innermost loop
    strides over the input channels of the weights.
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
