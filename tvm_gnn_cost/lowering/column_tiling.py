"""Schedules reductions that keep the last axis: means of images, and norms over time or over images."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import product
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule, ScheduleError
from tvm.tirx import IterVar

from tvm_gnn_cost.lowering.blocks import TILED, LaneRule, extents, is_contiguous, is_spatial, root_of
from tvm_gnn_cost.lowering.row_tiling import has_plain_loops, inline_followed, reduced, without_units

#: Numbers of vectors of the columns that a thread computes before others. More of them read longer parts of each row;
#: with fewer of them, more of what a second pass reads again is still in the cache.
_COUNTS = (8, 4, 2, 1)


@derived_object
class ColumnTiling(LaneRule):
    """Computes all blocks of a function for some columns before the next, in vectors of columns.

    It takes functions whose reductions keep the last axis of what they read and its leading axes. TVM's rules compute
    each reduction for all columns, through memory.

    Args:
        lanes: Number of float32 values in a vector register.
    """

    def apply(self, sch: Schedule, _: Any) -> list[Schedule]:
        """One schedule for each number of vectors; only ``sch`` if the rule does not apply."""
        kept = _kept(sch, sch.get_child_blocks(root_of(sch)))
        if kept is None:
            return [sch]
        axes, columns = kept
        lanes = next((size for size in (self.lanes, 8, 4) if size <= self.lanes and columns % size == 0), None)
        if lanes is None:
            return [sch]
        counts = [count for count in _COUNTS if columns % (count * lanes) == 0]
        results = []
        for count, parallel in product(counts, (True, False)):
            # A block of another shape may lie between.
            with suppress(ScheduleError):
                copy = sch.copy()
                _schedule(copy, axes, count, lanes, parallel)
                results.append(copy)
        return results or [sch]


def _schedule(sch: Schedule, axes: int, count: int, lanes: int, parallel: bool) -> None:
    root = root_of(sch)
    inline_followed(sch)
    *others, last = sch.get_child_blocks(root)
    if not is_spatial(sch, last):
        others.append(last)
        last = sch.cache_write(last, 0, "global")
    *middle, column = sch.get_loops(last)[axes:]
    outer, inner = sch.split(column, [None, count * lanes])
    sch.reorder(outer, *middle, inner)
    chunk = sch.fuse(*sch.get_loops(last)[:axes], outer)
    for block in reversed(others):
        sch.compute_at(block, chunk)
    for block in (*others, last):
        loops = sch.get_loops(block)[1:]
        if not loops:
            continue
        if is_spatial(sch, block):
            *rest, inner = loops
        else:
            # The columns come first, then what is summed.
            inner, *rest = loops
        vector, lane = sch.split(inner, [None, lanes])
        sch.reorder(*rest, vector, lane)
        if not is_spatial(sch, block):
            sch.unroll(vector)  # with an index that is not constant, the accumulators would be in memory
        sch.vectorize(lane)
    if parallel:
        sch.parallel(chunk)
    sch.annotate(root, TILED, 1)


def _kept(sch: Schedule, blocks: Sequence[Any]) -> tuple[int, int] | None:
    """Number of leading axes of the output that a function's reductions keep, and the extent of its last axis.

    None if there is no reduction, or one that does not keep the last axis of all that it reads, or of a window.
    """
    if not has_plain_loops(sch, blocks):
        return None
    kept = set()
    for stmt in (sch.get(block) for block in blocks if not is_spatial(sch, block)):
        columns = [var.var for var in stmt.iter_vars if var.iter_type == IterVar.DataPar][-1:]
        sums = reduced(stmt)
        if sums is None or not all(is_contiguous(region, var) for region in stmt.reads for var in columns):
            return None
        indices = [bound.min for region in stmt.reads for bound in region.region]
        if not all(any(index.same_as(var) for index in indices) for var in sums):
            return None  # a window
        kept.add(tuple(without_units(extents(stmt))))
    shape = extents(sch.get(blocks[-1]))
    if len(kept) != 1 or not shape or shape[-1] == 1:
        return None
    (sizes,) = kept
    axes = next((i for i in range(len(shape)) if (*without_units(shape[:i]), shape[-1]) == sizes), None)
    return None if axes is None else (axes, shape[-1])
