"""Schedules functions without products row by row: softmax, normalizations, elementwise functions, transposes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import tvm_ffi
from tvm.ir import Call
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule, ScheduleError
from tvm.s_tir import meta_schedule as ms
from tvm.tirx import ForKind, IterVar

from tvm_gnn_cost.lowering.blocks import TILED, is_spatial, root_of, uses

#: Largest number of rows that a thread computes before it takes others.
_MOST_ROWS = 64


@derived_object
class RowTiling(ms.schedule_rule.PyScheduleRule):  # type: ignore[misc]
    """Computes all blocks of a function for a row before the next row, in vectors along the row.

    It takes functions whose reductions are along the last axes of their output, such as softmax, normalizations and
    means, and functions without reductions. TVM's rules compute each reduction for all rows, through memory. The
    reductions become vectors in :func:`~tvm_gnn_cost.lowering.vectors.more_vectors`.

    Args:
        lanes: Number of float32 values in a vector register.
    """

    def __init__(self, lanes: int) -> None:
        super().__init__()
        self.lanes = lanes

    def _initialize_with_tune_context(self, context: ms.TuneContext) -> None:
        """No-op; MetaSchedule calls this."""

    def clone(self) -> RowTiling:
        """Copies the rule; MetaSchedule calls this for each task."""
        return RowTiling(self.lanes)

    def apply(self, sch: Schedule, _: Any) -> list[Schedule]:
        """A schedule with the rows in parallel and one without; only ``sch`` if the rule does not apply."""
        # The rule schedules the whole function when MetaSchedule offers it the first block.
        if TILED in sch.get(root_of(sch)).annotations:
            return [sch]
        blocks = sch.get_child_blocks(root_of(sch))
        is_movement = all(is_spatial(sch, block) for block in blocks)
        axes = self._axes_before_vectors(sch, blocks[-1]) if is_movement else _row_axes(sch, blocks)
        if axes is None:
            return [sch]
        # TVM's rules split what all axes fused give, which may be better where values move between axes.
        results = [sch] if is_movement else []
        for parallel in (True, False):
            # A block of another shape may lie between.
            with suppress(ScheduleError):
                copy = sch.copy()
                self._schedule(copy, axes, parallel)
                results.append(copy)
        return results or [sch]

    def _axes_before_vectors(self, sch: Schedule, block: Any) -> int | None:
        """Number of leading axes of a block whose other axes are at least a vector."""
        shape = [int(var.dom.extent) for var in sch.get(block).iter_vars]
        if len(sch.get_loops(block)) != len(shape) or math.prod(shape) < 2 * self.lanes:
            return None
        return max((i for i in range(1, len(shape)) if math.prod(shape[i:]) >= self.lanes), default=None)

    def _schedule(self, sch: Schedule, axes: int, parallel: bool) -> None:
        root = root_of(sch)
        for block in sch.get_child_blocks(root):
            if is_spatial(sch, block) and sch.get_consumers(block) and _is_inlined(sch, block):
                with suppress(ScheduleError):
                    sch.compute_inline(block)
        *others, last = sch.get_child_blocks(root)
        row = sch.fuse(*sch.get_loops(last)[:axes])
        rows = [row]
        if parallel:
            rows = sch.split(row, sch.sample_perfect_tile(row, 2, _MOST_ROWS))
        for block in reversed(others):
            sch.compute_at(block, rows[-1])
        for block in (*others, last):
            self._vectorize(sch, block, len(rows))
        if parallel:
            sch.parallel(rows[0])
        sch.annotate(root, TILED, 1)

    def _vectorize(self, sch: Schedule, block: Any, outer: int) -> None:
        """Fuses the loops of a block along the row, and vectorizes those of a spatial block."""
        loops = sch.get_loops(block)[outer:]
        if not loops:
            return
        loop = sch.fuse(*loops)
        if not is_spatial(sch, block):
            return  # more_vectors makes vectors of reductions
        if int(sch.get(loop).extent) > self.lanes:
            _, loop = sch.split(loop, [None, self.lanes])
        sch.vectorize(loop)


def _row_axes(sch: Schedule, blocks: Sequence[Any]) -> int | None:
    """Number of leading axes of the output that a function's reductions keep; None if there are other reductions."""
    output = sch.get(blocks[-1])
    if any(len(sch.get_loops(block)) != len(sch.get(block).iter_vars) for block in blocks):
        return None
    if any(int(sch.get(loop).kind) != ForKind.SERIAL for block in blocks for loop in sch.get_loops(block)):
        return None
    kept = set()
    for block in blocks:
        if is_spatial(sch, block):
            continue
        stmt = sch.get(block)
        sums = [var.var for var in stmt.iter_vars if var.iter_type == IterVar.CommReduce]
        summed = {
            region.source
            for region in stmt.reads
            if any(uses(bound.min, var) for bound in region.region for var in sums)
        }
        # A product sums over two buffers.
        if len(stmt.writes) != 1 or len(summed) != 1 or not any(_ends_with(region, sums) for region in stmt.reads):
            return None
        extents = [int(var.dom.extent) for var in stmt.iter_vars if var.iter_type == IterVar.DataPar]
        kept.add(tuple(_without_units(extents)))
    shape = [int(var.dom.extent) for var in output.iter_vars if var.iter_type == IterVar.DataPar]
    if len(kept) != 1:
        return None
    (rows,) = kept
    axes = next((i for i in range(len(shape) + 1) if tuple(_without_units(shape[:i])) == rows), None)
    if axes is None:
        return None
    # The output may be the reduction itself; units may follow the rows.
    while axes < len(shape) and shape[axes] == 1:
        axes += 1
    return axes or None


def _ends_with(region: Any, variables: Sequence[Any]) -> bool:
    """Whether the last axes of what a block reads have these indices."""
    indices = [bound.min for bound in region.region if int(bound.extent) == 1]
    last = indices[len(indices) - len(variables) :]
    return len(last) == len(variables) and all(map(lambda index, var: bool(index.same_as(var)), last, variables))


def _without_units(extents: Sequence[int]) -> list[int]:
    return [extent for extent in extents if extent != 1]


def _is_inlined(sch: Schedule, block: Any) -> bool:
    """Whether a block is cheaper to compute again for each consumer than to store: it calls no function."""
    if len(sch.get_consumers(block)) == 1:
        return True
    calls: list[Any] = []
    tvm_ffi.structural_walk(sch.get(block).body, [(Call, calls.append)])
    return not calls
