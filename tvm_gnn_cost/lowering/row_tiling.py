"""Schedules functions without products row by row: softmax, normalizations, elementwise functions, transposes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import tvm_ffi
from tvm.ir import TensorLoad
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule, ScheduleError
from tvm.sym import detect_linear_equation
from tvm.tirx import BufferStore, ForKind, IntImm, IterVar

from tvm_gnn_cost.lowering.blocks import TILED, LaneRule, calls_in, extents, is_spatial, root_of, uses

#: Largest number of rows that a thread computes before it takes others.
_MOST_ROWS = 64

#: Smallest number of adjacent values for which functions such as ``exp``, which take as long for a part of a vector as
#: for all of it, are not called for more values at a time.
_FEWEST_ADJACENT = 4


@derived_object
class RowTiling(LaneRule):
    """Computes all blocks of a function for a row before the next row, in vectors along the row.

    It takes functions whose reductions are along the last axes of their output, such as softmax, normalizations and
    means, and functions without reductions. TVM's rules compute each reduction for all rows, through memory. The
    reductions become vectors in :func:`~tvm_gnn_cost.lowering.vectors.more_vectors`.

    Args:
        lanes: Number of float32 values in a vector register.
    """

    def apply(self, sch: Schedule, _: Any) -> list[Schedule]:
        """A schedule with the rows in parallel and one without; only ``sch`` if the rule does not apply."""
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
        inline_followed(sch)
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
        if not is_spatial(sch, block):
            sch.fuse(*loops)  # more_vectors makes vectors of reductions
            return
        loop = sch.fuse(*loops[_first_adjacent(sch, loops, sch.get(block), self.lanes) :])
        if int(sch.get(loop).extent) > self.lanes:
            _, loop = sch.split(loop, [None, self.lanes])
        sch.vectorize(loop)


def inline_followed(sch: Schedule) -> None:
    """Inlines the blocks that are cheaper to compute again for each of their consumers than to store."""
    for block in sch.get_child_blocks(root_of(sch)):
        if is_spatial(sch, block) and sch.get_consumers(block) and _is_inlined(sch, block):
            with suppress(ScheduleError):
                sch.compute_inline(block)


def has_plain_loops(sch: Schedule, blocks: Sequence[Any]) -> bool:
    """Whether blocks are not scheduled yet: each axis is a serial loop."""
    return all(
        len(loops := sch.get_loops(block)) == len(sch.get(block).iter_vars)
        and all(int(sch.get(loop).kind) == ForKind.SERIAL for loop in loops)
        for block in blocks
    )


def reduced(stmt: Any) -> list[Any] | None:
    """The variables over which a block reduces a buffer; None for a product, which reduces two."""
    variables = [var.var for var in stmt.iter_vars if var.iter_type == IterVar.CommReduce]
    buffers = {
        region.source
        for region in stmt.reads
        if any(uses(bound.min, var) for bound in region.region for var in variables)
    }
    return variables if len(stmt.writes) == 1 and len(buffers) == 1 else None


def without_units(sizes: Sequence[int]) -> list[int]:
    """The sizes that are not 1."""
    return [size for size in sizes if size != 1]


def _row_axes(sch: Schedule, blocks: Sequence[Any]) -> int | None:
    """Number of leading axes of the output that a function's reductions keep; None if there are other reductions."""
    if not has_plain_loops(sch, blocks):
        return None
    kept = set()
    for stmt in (sch.get(block) for block in blocks if not is_spatial(sch, block)):
        sums = reduced(stmt)
        if sums is None or not any(_ends_with(region, sums) for region in stmt.reads):
            return None
        kept.add(tuple(without_units(extents(stmt))))
    shape = extents(sch.get(blocks[-1]))
    if len(kept) != 1:
        return None
    (rows,) = kept
    axes = next((i for i in range(len(shape) + 1) if tuple(without_units(shape[:i])) == rows), None)
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


def _first_adjacent(sch: Schedule, loops: Sequence[Any], stmt: Any, lanes: int) -> int:
    """Index of the first of the loops along a row whose iterations, fused, are adjacent in all that a block accesses.

    Values that are not adjacent would be loaded each by itself. It is 0, to fuse all loops, where no values are
    adjacent, or to fill the vectors of functions such as ``exp``.
    """
    variables = [variable for variable in stmt.iter_vars if int(variable.dom.extent) > 1]
    counts: list[int] = []
    loads = (TensorLoad, lambda load: counts.append(_adjacent(load.source, load.indices, variables)))
    stores = (BufferStore, lambda store: counts.append(_adjacent(store.buffer, store.indices, variables)))
    tvm_ffi.structural_walk(stmt.body, [loads, stores])
    sizes = [int(sch.get(loop).extent) for loop in loops]
    suffixes = [math.prod(sizes[i:]) for i in range(len(sizes) + 1)]
    first = next(i for i, size in enumerate(suffixes) if size <= min(counts, default=1))
    width = suffixes[first]
    if calls_in(stmt.body):
        is_full = suffixes[0] % lanes == 0 and lanes % width == 0
        return 0 if is_full or width < _FEWEST_ADJACENT else first
    return first if width > 1 else 0


def _adjacent(buffer: Any, indices: Sequence[Any], variables: Sequence[IterVar]) -> int:
    """Number of iterations of the last variables that access adjacent values of a buffer, or a single value."""
    offset: Any = 0
    for index, size in zip(indices, buffer.shape, strict=True):
        offset = offset * int(size) + index
    # Empty if the offset is not linear; the last is what has no variable as a factor.
    strides = detect_linear_equation(offset, [variable.var for variable in variables])
    count, step = 1, None
    for variable, stride in reversed([*zip(variables, strides, strict=False)]):
        if not isinstance(stride, IntImm):
            break  # it depends on what is loaded
        if step is None and int(stride) in (0, 1):
            step = int(stride)
        if step is None or int(stride) != step * count:
            break
        count *= int(variable.dom.extent)
    return count


def _is_inlined(sch: Schedule, block: Any) -> bool:
    """Whether a block is cheaper to compute again for each consumer than to store: it calls no function."""
    return len(sch.get_consumers(block)) == 1 or not calls_in(sch.get(block).body)
