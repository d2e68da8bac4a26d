"""Resizing: along each axis, a static gather or a weighted sum of a few elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from tvm_gnn_cost.importing.interpolation import Integers, ResizedAxis, Resizing, resizing
from tvm_gnn_cost.importing.relax.rules import Primitive, Unsupported, rule
from tvm_gnn_cost.importing.simplify import Refused

#: Tolerance of coordinates, in elements.
_SAME = 3e-5

#: Maximum number of elements of an unrolled sum.
_FEW = 4


@rule("Resize", "Upsample")
def resize(node: Primitive) -> relax.Expr:
    """Resizes any axes: nearest, linear or cubic."""
    try:
        plan = resizing(node.operator, node.version, node.node.attributes, node.shape(0), node.node.inputs)
    except Refused as error:
        raise Unsupported(str(error)) from error
    x = node.tensor(0)
    if plan.is_nearest:
        result = _gathered(node, x, plan.axes)
    else:
        if np.dtype(node.dtype(0)).kind != "f":
            raise Unsupported("interpolated integers are rounded differently by ONNX and ONNX Runtime")
        result = _interpolated(node, x, plan)
    outside = plan.outside(len(node.shape(0)))
    if outside is None:
        return result
    return relax.op.where(node.const(outside), node.const(plan.extrapolation or 0.0, node.dtype(0)), result)


def _gathered(node: Primitive, x: relax.Expr, axes: Sequence[ResizedAxis]) -> relax.Expr:
    """Gathers elements along each axis."""
    if not axes:
        return x
    out = node.out_shape()
    if _is_pictures(node, axes) and all(_repeats(axis) for axis in axes):
        options = {"method": "nearest_neighbor", "coordinate_transformation_mode": "asymmetric"}
        return relax.op.image.resize2d(x, tuple(out[2:]), layout="NCHW", rounding_method="floor", **options)
    steps = [_formula(axis.numbers[:, 0]) for axis in axes]
    tables = [node.const(axis.numbers[:, 0]) for axis, step in zip(axes, steps, strict=True) if step is None]

    def gather(data: te.Tensor, *numbers: te.Tensor) -> te.Tensor:
        def element(*indices: Any) -> Any:
            at, rest = list(indices), iter(numbers)
            for axis, step in zip(axes, steps, strict=True):
                index = at[axis.axis]
                at[axis.axis] = (
                    _held(next(rest)[index], axis) if step is None else (index * step[0] + step[2]) // step[1]
                )
            return data[tuple(at)]

        return te.compute(out, element, name="resize")

    return node.te(gather, x, *tables, name="resize")


def _is_pictures(node: Primitive, axes: Sequence[ResizedAxis]) -> bool:
    """Whether Relax's image operator supports the operand; it computes in float32."""
    return len(node.shape(0)) == 4 and node.dtype(0) == "float32" and all(axis.axis >= 2 for axis in axes)


def _repeats(axis: ResizedAxis) -> bool:
    """Whether each element is repeated equally often, so that TVM's integer division is exact."""
    factor = axis.out // axis.size
    return (
        factor * axis.size == axis.out
        and factor * (1e-5 * axis.size + 1e-5) <= 1
        and bool((axis.numbers[:, 0] == np.arange(axis.out) // factor).all())
    )


def _formula(chosen: Integers) -> tuple[int, int, int] | None:
    """Integers (a, b, c) so that index i is (a * i + c) // b; None if there are none.

    >>> _formula(np.array([1, 3, 5])), _formula(np.array([0, 0, 0, 1, 1, 1])), _formula(np.array([0, 1, 3]))
    ((2, 1, 1), (1, 3, 0), None)
    """
    places = np.arange(chosen.size)
    step = int(chosen[1] - chosen[0]) if chosen.size > 1 else 0
    if step and (chosen == places * step + chosen[0]).all():
        return step, 1, int(chosen[0])
    changes = np.flatnonzero(np.diff(chosen))
    if changes.size:
        factor = int(changes[1] - changes[0]) if changes.size > 1 else int(changes[0]) + 1
        moved = int(chosen[0]) * factor + factor - 1 - int(changes[0])
        if (chosen == (places + moved) // factor).all():
            return 1, factor, moved
    return None


def _interpolated(node: Primitive, x: relax.Expr, plan: Resizing) -> relax.Expr:
    """Interpolates along each axis."""
    if plan.axes and not plan.is_cubic and not plan.antialias and _is_pictures(node, plan.axes):
        mode = _relax_mode(plan.axes)
        if mode is not None:
            options = {"method": "linear", "coordinate_transformation_mode": mode}
            return relax.op.image.resize2d(x, tuple(node.out_shape()[2:]), layout="NCHW", **options)
    for axis in plan.axes:
        x = _summed(node, x, axis)
    return x


def _relax_mode(axes: Sequence[ResizedAxis]) -> str | None:
    """The mode of Relax's operator with the same coordinates; None if there is none."""
    for mode in ("half_pixel", "align_corners", "asymmetric"):
        for axis in axes:
            index, size, out = np.arange(axis.out, dtype=np.float32), np.float32(axis.size), np.float32(axis.out)
            if mode == "half_pixel":
                at = (index + np.float32(0.5)) * (size / out) - np.float32(0.5)
            elif mode == "asymmetric":
                at = index * (size / out)
            elif axis.out == 1:
                break
            else:
                at = (size - 1) / (out - 1) * index
            # It repeats the first and the last element.
            if np.abs(at.clip(0, size - 1) - axis.places.clip(0, size - 1)).max() > _SAME:
                break
        else:
            return mode
    return None


def _held(number: Any, axis: ResizedAxis) -> Any:
    """A clamped index: tasks are measured with random indices."""
    return tirx.min(tirx.max(number, 0), axis.size - 1)


def _summed(node: Primitive, x: relax.Expr, resized: ResizedAxis) -> relax.Expr:
    """Weighted sums along one axis."""
    assert resized.weights is not None
    count, axis = resized.weights.shape[1], resized.axis

    def summed(data: te.Tensor, numbers: te.Tensor, weights: te.Tensor) -> te.Tensor:
        def term(indices: Sequence[Any], number: Any) -> Any:
            at = list(indices)
            at[axis] = _held(numbers[indices[axis], number], resized)
            return data[tuple(at)] * weights[indices[axis], number]

        shape = [resized.out if number == axis else size for number, size in enumerate(data.shape)]
        if count <= _FEW:
            return te.compute(shape, lambda *i: sum((term(i, k) for k in range(1, count)), term(i, 0)), name="resize")
        step = te.reduce_axis((0, count), "k")
        return te.compute(shape, lambda *i: te.sum(term(i, step), axis=step), name="resize")

    return node.te(summed, x, node.const(resized.numbers), node.const(resized.weights, node.dtype(0)), name="resize")
