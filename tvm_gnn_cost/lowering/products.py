"""Matrix products that read rearranged operands as they are, such as the heads of attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import tvm
from tvm import relax, te
from tvm.ir.expr import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_gnn_cost.lowering.blocks import FUSABLE
from tvm_gnn_cost.lowering.constants import constant
from tvm_gnn_cost.lowering.forms import rewritten, shape_of
from tvm_gnn_cost.lowering.views import Axis, Grid, View, extent_of, refined, view_of


def read_in_place(mod: tvm.IRModule) -> tvm.IRModule:
    """Lets matrix products read transposes, slices and repetitions in place, and multiplies by scalars after them.

    Only in products of floats; the others are left unchanged.
    """
    return relax.transform.DeadCodeElimination(["main"])(rewritten(mod, _Reading(mod)))


@mutator
class _Reading(PyExprMutator):  # type: ignore[misc]
    """Rewrites matrix products."""

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Visits a call; Relax calls this."""
        call = self.visit_expr_post_order(call)
        if getattr(call.op, "name", "") != "relax.matmul" or shape_of(call) is None:
            return call
        dtypes = {str(value.ty.dtype) for value in (call, *call.args)}
        if len(dtypes) > 1 or not dtypes <= {"float16", "float32", "float64"}:
            return call
        left, right = (view_of(value, self.lookup_binding, dtypes != {"float16"}) for value in call.args)
        if left is None or right is None or min(len(left.axes), len(right.axes)) < 2:
            return call
        result = self._product(call, left, right)
        scale = left.scale * right.scale
        if result is None:
            return call
        return result if scale == 1 else relax.op.multiply(result, relax.const(scale, *dtypes))

    def _product(self, call: relax.Call, left: View, right: View) -> relax.Expr | None:
        """The product of two rearranged values; None if there is nothing to gain."""
        # Tiles of rows from several places are slower than a copy.
        if (left.is_whole() and right.is_whole()) or len(left.axes[-2]) > 1:
            return None
        matched = _matched(left, right)
        grids = [grid for view in matched or () if (grid := view.grid()) is not None]
        if matched is None or len(grids) < len(matched):
            return None
        sources = [self._reshaped(view.source, grid.sizes) for view, grid in zip(matched, grids, strict=True)]
        result = self.builder_.call_te(
            partial(_computed, views=matched, grids=grids),
            *sources,
            primfunc_name_hint="matmul",
            primfunc_attrs={"op_pattern": FUSABLE},
        )
        return self._reshaped(self.builder_.emit(result), shape_of(call) or [])

    def _reshaped(self, source: Any, sizes: Sequence[int]) -> Any:
        if shape_of(source) == list(sizes):
            return source
        if isinstance(source, GenericConst):
            return constant(source.value.numpy().reshape(sizes), str(source.ty.dtype))
        return self.builder_.emit(relax.op.reshape(source, list(sizes)))


def _matched(left: View, right: View) -> tuple[View, View] | None:
    """The operands with as many batch axes, and the same factors of these and of the summed axis."""
    rank = max(len(left.axes), len(right.axes))
    axes = [[()] * (rank - len(view.axes)) + list(view.axes) for view in (left, right)]
    pairs = [(number, number) for number in range(rank - 2)] + [(rank - 1, rank - 2)]
    for here, there in pairs:
        extent = max(extent_of(axes[0][here]), extent_of(axes[1][there]))
        axis, other = (items[place] or _repeated(extent) for items, place in zip(axes, (here, there), strict=True))
        both = refined(axis, other)
        if both is None:
            return None
        axes[0][here], axes[1][there] = both
    return replace(left, axes=tuple(axes[0])), replace(right, axes=tuple(axes[1]))


def _repeated(extent: int) -> Axis:
    return () if extent == 1 else ((extent, 0),)


def _computed(left: te.Tensor, right: te.Tensor, views: Sequence[View], grids: Sequence[Grid]) -> te.Tensor:
    """The product; its axes are the factors of the batch, row and column axes.

    A schedule packs an operand whose columns are not last.
    """
    *batch, rows, summed = views[0].axes
    columns = views[1].axes[-1]
    # Axes of extent 1 are left as they are.
    spatial = [axis or ((1, 0),) for axis in (*batch, rows, columns)]
    counts = [len(axis) for axis in spatial]
    shared = sum(views[1].axes[: len(batch)], ())
    reduced = [te.reduce_axis((0, extent), name="k") for extent, _ in summed or ((1, 0),)]

    def value(*at: Any) -> Any:
        parts, place = [], 0
        for count in counts:
            parts.append(at[place : place + count])
            place += count
        outer = [item for part, axis in zip(parts[:-2], batch, strict=True) if axis for item in part]
        sums = reduced if summed else []
        here = grids[0].indices((*sum(batch, ()), *rows, *summed), [*outer, *(parts[-2] if rows else ()), *sums])
        there = grids[1].indices(
            (*shared, *views[1].axes[-2], *columns), [*outer, *sums, *(parts[-1] if columns else ())]
        )
        return te.sum(left[tuple(here)] * right[tuple(there)], axis=reduced)

    return te.compute([extent for axis in spatial for extent, _ in axis], value, name="matmul")
