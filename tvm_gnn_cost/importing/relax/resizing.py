"""Resizing: along each axis, a choice of elements or a weighted sum of a few, both known beforehand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax, te

from tvm_gnn_cost.importing.relax.rules import Primitive, Unsupported, positive, rule, sizes

_Floats = npt.NDArray[Any]
_Integers = npt.NDArray[np.int64]

#: How far apart two coordinates may be to count as the same, in elements.
_SAME = 3e-5

#: Sums of at most so many elements are written out.
_FEW = 4


@dataclass(frozen=True)
class _Scaled:
    """An axis to resize.

    Attributes:
        axis: Which one.
        size, out: Its sizes before and after.
        scale: The factor between them, which may lead to a fraction of an element.
        start, end: The region of interest, as shares of the axis.
    """

    axis: int
    size: int
    out: int
    scale: float
    start: float = 0.0
    end: float = 1.0


@rule("Resize", "Upsample")
def resize(node: Primitive) -> relax.Expr:
    """Resizes any axes: to the nearest element, linearly, or with cubic polynomials."""
    shape, out, x = node.shape(0), node.out_shape(), node.tensor(0)
    if 0 in shape or 0 in out:
        raise Unsupported("it has no elements")
    mode = str(node.attribute("mode", "nearest"))
    crops = node.attribute("coordinate_transformation_mode") == "tf_crop_and_resize"
    axes = _axes(node)
    if crops and any(one.scale == 1 and (one.start, one.end) != (0, 1) for one in axes):
        raise Unsupported("cropping an axis at its own scale means something else in ONNX than in ONNX Runtime")
    axes = [one for one in axes if one.size != one.out or one.scale != 1]
    places = [_coordinates(node, one) for one in axes]
    if mode == "nearest":
        chosen = [_nearest(node, one, place) for one, place in zip(axes, places, strict=True)]
        found = _gathered(node, x, axes, chosen)
    elif mode in ("linear", "bilinear", "trilinear", "cubic"):
        if np.dtype(node.dtype(0)).kind != "f":
            raise Unsupported(f"mode '{mode}' of integers is rounded in other ways by ONNX and ONNX Runtime")
        found = _interpolated(node, x, axes, places, mode == "cubic")
    else:
        raise Unsupported(f"mode '{mode}' is unknown")
    return _extrapolated(node, found, axes, places) if crops else found


def _axes(node: Primitive) -> list[_Scaled]:
    """The axes that may be resized, and how."""
    shape, out = node.shape(0), node.out_shape()
    rank = len(shape)
    given = node.attribute("axes")
    axes = list(range(rank)) if given is None else [positive(one, rank) for one in sizes(given)]
    scales = _scales(node)
    if scales is None:
        factors = [np.float32(out[axis]) / np.float32(shape[axis]) for axis in axes]
        policy = node.attribute("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            wanted = sizes(node.constant(3, "sizes").tolist())
            every = [np.float32(one) / np.float32(shape[axis]) for axis, one in zip(axes, wanted, strict=True)]
            factors = [min(every) if policy == "not_larger" else max(every)] * len(axes)
    else:
        factors = [np.float32(one) for one in scales]
        if len(factors) != len(axes) or min(factors) <= 0:
            raise Unsupported("its scales do not fit its operand")
    starts, ends = [0.0] * len(axes), [1.0] * len(axes)
    if node.attribute("coordinate_transformation_mode") == "tf_crop_and_resize":
        roi = node.constant(1, "roi").astype(np.float64).tolist()
        starts, ends = roi[: len(axes)], roi[len(axes) :]
    return [
        _Scaled(axis, shape[axis], out[axis], float(factor), start, end)
        for axis, factor, start, end in zip(axes, factors, starts, ends, strict=True)
    ]


def _scales(node: Primitive) -> list[float] | None:
    """The factors that are given; None if the sizes are."""
    if node.operator == "Upsample" and node.version < 9:
        scales: list[float] | None = node.attribute("scales")
        return scales
    position = 1 if node.operator == "Upsample" or node.version < 11 else 2
    if not node.has(position):
        return None
    found: list[float] = node.constant(position, "scales").reshape(-1).tolist()
    return found or None


def _coordinates(node: Primitive, one: _Scaled) -> _Floats:
    """Where each element of the output lies between those of the operand; in float32, as ONNX Runtime computes it."""
    single = np.float32
    place, size, out, scale = np.arange(one.out, dtype=single), single(one.size), single(one.out), single(one.scale)
    half, whole = single(0.5), single(1)
    mode = node.attribute("coordinate_transformation_mode", "asymmetric")
    if mode == "asymmetric":
        return place / scale
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and one.out > 1):
        return (place + half) / scale - half
    if mode == "tf_half_pixel_for_nn":
        return (place + half) / scale
    if mode == "half_pixel_symmetric":
        adjustment = out / (scale * size)
        return size / single(2) * (whole - adjustment) + (place + half) / scale - half
    if mode == "align_corners":
        if one.out > 1 and abs(scale * size - out) > 1e-3:
            raise Unsupported(
                "scales that leave a fraction of an element mean something else in ONNX than in ONNX Runtime"
            )
        return place * (size - whole) / (out - whole) if one.out > 1 else place * single(0)
    start, end = single(one.start), single(one.end)
    if mode == "tf_crop_and_resize":
        if one.out > 1:
            return start * (size - whole) + place * (end - start) * (size - whole) / (out - whole)
        return place + half * (start + end) * (size - whole)
    return place * single(0)


def _nearest(node: Primitive, one: _Scaled, place: _Floats) -> _Integers:
    """The number of the nearest element for each coordinate."""
    how = node.attribute("nearest_mode", "simple")
    if how == "simple":
        found = np.ceil(place) if one.scale < 1 else np.trunc(place)
    elif how == "floor":
        found = np.floor(place)
    elif how == "ceil":
        found = np.ceil(place)
    elif how == "round_prefer_floor":
        found = np.ceil(place - np.float32(0.5))
    elif how == "round_prefer_ceil":
        found = np.floor(place + np.float32(0.5))
    else:
        raise Unsupported(f"nearest_mode '{how}' is unknown")
    return found.clip(0, one.size - 1).astype(np.int64)


def _gathered(node: Primitive, x: relax.Expr, axes: Sequence[_Scaled], chosen: Sequence[_Integers]) -> relax.Expr:
    """Elements by their numbers along each axis."""
    if not axes:
        return x
    out = node.out_shape()
    if _is_pictures(node, axes) and all(_repeats(one, choice) for one, choice in zip(axes, chosen, strict=True)):
        options = {"method": "nearest_neighbor", "coordinate_transformation_mode": "asymmetric"}
        return relax.op.image.resize2d(x, tuple(out[2:]), layout="NCHW", rounding_method="floor", **options)
    steps = [_formula(choice) for choice in chosen]
    tables = [node.const(choice) for choice, step in zip(chosen, steps, strict=True) if step is None]

    def gather(data: te.Tensor, *numbers: te.Tensor) -> te.Tensor:
        def element(*indices: Any) -> Any:
            own, rest = list(indices), iter(numbers)
            for one, step in zip(axes, steps, strict=True):
                index = own[one.axis]
                own[one.axis] = next(rest)[index] if step is None else (index * step[0] + step[2]) // step[1]
            return data[tuple(own)]

        return te.compute(out, element, name="resize")

    return node.te(gather, x, *tables, name="resize")


def _is_pictures(node: Primitive, axes: Sequence[_Scaled]) -> bool:
    """Whether Relax's operator for pictures takes the operand: it computes in float32."""
    return len(node.shape(0)) == 4 and node.dtype(0) == "float32" and all(one.axis >= 2 for one in axes)


def _repeats(one: _Scaled, chosen: _Integers) -> bool:
    """Whether each element is repeated equally often, and TVM divides integers for it."""
    factor = one.out // one.size
    return (
        factor * one.size == one.out
        and factor * (1e-5 * one.size + 1e-5) <= 1
        and bool((chosen == np.arange(one.out) // factor).all())
    )


def _formula(chosen: _Integers) -> tuple[int, int, int] | None:
    """Numbers (a, b, c) with which element i of a choice is (a * i + c) / b rounded down; None if there are none."""
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


def _interpolated(
    node: Primitive, x: relax.Expr, axes: Sequence[_Scaled], places: Sequence[_Floats], is_cubic: bool
) -> relax.Expr:
    """Weighted sums of a few elements along each axis."""
    antialias = bool(node.attribute("antialias", 0))
    if not is_cubic and _is_pictures(node, axes) and not (antialias and any(one.scale < 1 for one in axes)):
        mode = _relax_mode(axes, places)
        if mode is not None and axes:
            out = tuple(node.out_shape()[2:])
            return relax.op.image.resize2d(x, out, layout="NCHW", method="linear", coordinate_transformation_mode=mode)
    for one, place in zip(axes, places, strict=True):
        numbers, weights = _weights(node, one, place, is_cubic)
        x = _summed(node, x, one, numbers, weights)
    return x


def _relax_mode(axes: Sequence[_Scaled], places: Sequence[_Floats]) -> str | None:
    """The mode in which Relax's operator computes the same coordinates, if there is one."""
    for mode in ("half_pixel", "align_corners", "asymmetric"):
        for one, place in zip(axes, places, strict=True):
            index, size, out = np.arange(one.out, dtype=np.float32), np.float32(one.size), np.float32(one.out)
            if mode == "half_pixel":
                own = (index + np.float32(0.5)) * (size / out) - np.float32(0.5)
            elif mode == "asymmetric":
                own = index * (size / out)
            elif one.out == 1:
                break
            else:
                own = (size - 1) / (out - 1) * index
            # Beyond the first and the last element, it repeats these.
            if np.abs(own.clip(0, size - 1) - place.clip(0, size - 1)).max() > _SAME:
                break
        else:
            return mode
    return None


def _weights(node: Primitive, one: _Scaled, place: _Floats, is_cubic: bool) -> tuple[_Integers, _Floats]:
    """For each element of the output, the numbers of those of the operand that it is a sum of, and their weights."""
    exact = place.astype(np.float64)
    if not is_cubic:
        exact = exact.clip(0, one.size - 1)
    scale = min(1.0, one.scale) if node.attribute("antialias", 0) else 1.0
    reach = int(np.ceil((2 if is_cubic else 1) / scale))
    first = np.floor(exact).astype(np.int64) - reach + 1
    numbers = first[:, None] + np.arange(2 * reach)
    away = np.abs(numbers - exact[:, None]) * scale
    weights = _cubic(away, float(node.attribute("cubic_coeff_a", -0.75))) if is_cubic else (1 - away).clip(0)
    weights = weights / weights.sum(1, keepdims=True)
    if node.attribute("exclude_outside", 0):
        weights = weights * ((numbers >= 0) & (numbers < one.size))
        weights = weights / weights.sum(1, keepdims=True)
    return numbers.clip(0, one.size - 1), weights


def _cubic(away: _Floats, a: float) -> _Floats:
    """Keys' kernel at a distance."""
    near = ((a + 2) * away - (a + 3)) * away * away + 1
    far = ((away - 5) * away + 8) * away * a - 4 * a
    found: _Floats = np.where(away <= 1, near, np.where(away < 2, far, 0))
    return found


def _summed(node: Primitive, x: relax.Expr, one: _Scaled, numbers: _Integers, weights: _Floats) -> relax.Expr:
    """Weighted sums along one axis."""
    count, axis = weights.shape[1], one.axis

    def summed(data: te.Tensor, places: te.Tensor, shares: te.Tensor) -> te.Tensor:
        def term(indices: Sequence[Any], number: Any) -> Any:
            own = list(indices)
            own[axis] = places[indices[axis], number]
            return data[tuple(own)] * shares[indices[axis], number]

        shape = [one.out if number == axis else size for number, size in enumerate(data.shape)]
        if count <= _FEW:
            return te.compute(shape, lambda *i: sum((term(i, k) for k in range(1, count)), term(i, 0)), name="resize")
        step = te.reduce_axis((0, count), "k")
        return te.compute(shape, lambda *i: te.sum(term(i, step), axis=step), name="resize")

    return node.te(summed, x, node.const(numbers), node.const(weights, node.dtype(0)), name="resize")


def _extrapolated(node: Primitive, found: relax.Expr, axes: Sequence[_Scaled], places: Sequence[_Floats]) -> relax.Expr:
    """A constant where a coordinate is outside of the operand."""
    outside: Any = np.zeros([1] * len(node.out_shape()), bool)
    for one, place in zip(axes, places, strict=True):
        along = [-1 if axis == one.axis else 1 for axis in range(outside.ndim)]
        outside = outside | ((place < 0) | (place > one.size - 1)).reshape(along)
    if not outside.any():
        return found
    value = node.const(node.attribute("extrapolation_value", 0.0), node.dtype(0))
    return relax.op.where(node.const(outside), value, found)
