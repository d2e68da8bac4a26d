"""What the rules of the design space ask of blocks and do to them."""

from __future__ import annotations

from typing import Any

from tvm.s_tir import Schedule
from tvm.tirx import ForKind, IterVar
from tvm.tirx.analysis import undefined_vars

#: Accumulators that a tile may use: AVX-512 has 32 registers, of which the operands need some; AVX2 has 16.
REGISTERS = {16: 28, 8: 12, 4: 12}

#: Marks the root block of a function that is tiled.
TILED = "tvm_gnn_cost.register_tiled"


def root_of(sch: Schedule) -> Any:
    """The block around all others of the function ``main``; not called ``root`` where that is a single opaque one."""
    return sch.get_sblock(sch.mod["main"].body.block.name_hint)


def is_spatial(sch: Schedule, block: Any) -> bool:
    """Whether a block is no reduction."""
    return all(var.iter_type == IterVar.DataPar for var in sch.get(block).iter_vars)


def is_contiguous(region: Any, var: Any) -> bool:
    """Whether a buffer's region has ``var`` in its last index or not at all."""
    *others, last = [bound.min for bound in region.region]
    return not any(_uses(index, var) for index in others) and (last.same_as(var) or not _uses(last, var))


def is_elementwise(sch: Schedule, block: Any, buffer: Any) -> bool:
    """Whether a block reads a buffer at its own position alone.

    TVM's ``reverse_compute_at`` moves a reshape into a tile too, and the program then computes something else.
    """
    stmt = sch.get(block)
    axes = [var.var for var in stmt.iter_vars]
    reads = [[bound.min for bound in region.region] for region in stmt.reads if region.source.same_as(buffer)]
    return is_spatial(sch, block) and all(
        len(indices) == len(axes) and all(index.same_as(var) for index, var in zip(indices, axes, strict=True))
        for indices in reads
    )


def vectorize_last(sch: Schedule, block: Any, lanes: int) -> None:
    """Vectorizes a block's last loop, if its extent allows it."""
    last = sch.get_loops(block)[-1]
    extent = int(sch.get(last).extent)
    if extent % lanes == 0:
        last = sch.split(last, [None, lanes])[1]
    if extent % lanes == 0 or 1 < extent <= 4 * lanes:
        sch.vectorize(last)


def spread(sch: Schedule, block: Any, lanes: int) -> None:
    """Runs a block outside the tiles on all cores, vectorized."""
    loops = sch.get_loops(block)
    if not is_spatial(sch, block) or any(int(sch.get(loop).kind) != ForKind.SERIAL for loop in loops):
        return
    vectorize_last(sch, block, lanes)
    if len(loops) > 1:
        sch.parallel(sch.fuse(*loops[:-1]))


def _uses(expression: Any, var: Any) -> bool:
    return any(undefined_var.same_as(var) for undefined_var in undefined_vars(expression))
