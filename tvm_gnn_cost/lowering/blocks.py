"""Predicates and schedule primitives that the design-space rules share."""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm.ir import Call
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.tirx import ForKind, IterVar
from tvm.tirx.analysis import undefined_vars

#: Vector lanes -> accumulators of a register tile. AVX-512 has 32 registers, AVX2 has 16; the operands need the rest.
REGISTERS = {16: 28, 8: 12, 4: 12}

#: Attribute of a function: indices of the parameters whose layout a schedule may choose.
FREE = "layout_free_buffers"

#: Attribute ``op_pattern`` of a function that elementwise operators may be fused after (TVM's kOutEWiseFusable), and of
#: one that is not fused after such a function (kInjective).
FUSABLE, INJECTIVE = 4, 2

#: Annotation of the root block of a tiled function.
TILED = "tvm_gnn_cost.register_tiled"


class LaneRule(ms.schedule_rule.PyScheduleRule):  # type: ignore[misc]
    """A schedule rule that needs only the width of vectors; its subclasses are decorated with ``derived_object``.

    Args:
        lanes: Number of float32 values in a vector register.
    """

    def __init__(self, lanes: int) -> None:
        super().__init__()
        self.lanes = lanes

    def _initialize_with_tune_context(self, context: ms.TuneContext) -> None:
        """No-op; MetaSchedule calls this."""

    def clone(self) -> Any:
        """Copies the rule; MetaSchedule calls this for each task."""
        # The decorated object may be gone: MetaSchedule keeps its methods alone.
        return derived_object(type(self))(self.lanes)


def root_of(sch: Schedule) -> Any:
    """The outermost block of ``main``; a single opaque block is not named ``root``."""
    return sch.get_sblock(sch.mod["main"].body.block.name_hint)


def extents(stmt: Any) -> list[int]:
    """Those of a block's data-parallel axes."""
    return [int(var.dom.extent) for var in stmt.iter_vars if var.iter_type == IterVar.DataPar]


def covered(extent: int, size: int) -> int:
    """The extent of whole tiles that cover an axis.

    >>> covered(71, 9)
    72
    """
    return -(-extent // size) * size


def is_spatial(sch: Schedule, block: Any) -> bool:
    """Whether all of a block's axes are data parallel."""
    return all(var.iter_type == IterVar.DataPar for var in sch.get(block).iter_vars)


def is_contiguous(region: Any, var: Any) -> bool:
    """Whether ``var`` occurs at most in the last index of a buffer region, and alone there."""
    *others, last = [bound.min for bound in region.region]
    return not any(uses(index, var) for index in others) and (last.same_as(var) or not uses(last, var))


def is_elementwise(sch: Schedule, block: Any, buffer: Any) -> bool:
    """Whether a block reads a buffer only at its own iteration variables.

    TVM's ``reverse_compute_at`` also moves a reshape into a tile, and the result is then wrong.
    """
    stmt = sch.get(block)
    axes = [var.var for var in stmt.iter_vars]
    reads = [[bound.min for bound in region.region] for region in stmt.reads if region.source.same_as(buffer)]
    return is_spatial(sch, block) and all(
        len(indices) == len(axes) and all(index.same_as(var) for index, var in zip(indices, axes, strict=True))
        for indices in reads
    )


def vectorize_last(sch: Schedule, block: Any, lanes: int) -> None:
    """Vectorizes a block's last loop if its extent allows it."""
    last = sch.get_loops(block)[-1]
    extent = int(sch.get(last).extent)
    if extent % lanes == 0:
        last = sch.split(last, [None, lanes])[1]
    if extent % lanes == 0 or 1 < extent <= 4 * lanes:
        sch.vectorize(last)


def spread(sch: Schedule, block: Any, lanes: int) -> None:
    """Parallelizes and vectorizes a block outside of the tiles."""
    loops = sch.get_loops(block)
    if not is_spatial(sch, block) or any(int(sch.get(loop).kind) != ForKind.SERIAL for loop in loops):
        return
    vectorize_last(sch, block, lanes)
    if len(loops) > 1:
        sch.parallel(sch.fuse(*loops[:-1]))


def calls_in(node: Any) -> list[Any]:
    """All calls in a statement or an expression."""
    calls: list[Any] = []
    tvm_ffi.structural_walk(node, [(Call, calls.append)])
    return calls


def uses(expression: Any, var: Any) -> bool:
    """Whether a variable occurs in an expression."""
    return any(undefined_var.same_as(var) for undefined_var in undefined_vars(expression))
