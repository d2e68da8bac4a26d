"""Pooling over windows, whole images and regions."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from tvm_gnn_cost.importing.relax.products import padding
from tvm_gnn_cost.importing.relax.rules import Primitive, Unsupported, rule, sizes

_MAX_POOL: dict[int, Any] = {
    1: (relax.op.nn.max_pool1d, "NCW"),
    2: (relax.op.nn.max_pool2d, "NCHW"),
    3: (relax.op.nn.max_pool3d, "NCDHW"),
}
_AVERAGE_POOL: dict[int, Any] = {
    1: (relax.op.nn.avg_pool1d, "NCW"),
    2: (relax.op.nn.avg_pool2d, "NCHW"),
    3: (relax.op.nn.avg_pool3d, "NCDHW"),
}


@dataclass(frozen=True)
class _Axis:
    """The windows along one axis.

    Attributes:
        size: Size of the operand.
        out: Number of windows.
        kernel, stride, dilation: Size, stride and dilation of the windows.
        before: Padding before the operand; that after it follows from the other sizes.
        behind: Padding after it, as the operator states.
    """

    size: int
    out: int
    kernel: int
    stride: int
    dilation: int
    before: int
    behind: int

    def place(self, window: Any, step: Any) -> Any:
        """The position of a window's element in the operand."""
        return window * self.stride + step * self.dilation - self.before

    @property
    def last(self) -> int:
        """The position of the last element of the last window."""
        return int(self.place(self.out - 1, self.kernel - 1))

    @property
    def filled(self) -> int:
        """The padding after the operand that results in this number of windows."""
        least = max(0, self.last + 1 - self.size)
        return min(max(self.behind, least), least + self.stride - 1)

    def inside(self, place: Any) -> list[Any]:
        """Conditions for a position to be inside of the operand."""
        return [*([place >= 0] if self.before else []), *([place < self.size] if self.last >= self.size else [])]

    def trimmed(self) -> _Axis:
        """Crops the elements that are in the padding in every window.

        A window may be much larger than its image, for example with ``ceil_mode``.
        """
        if self.dilation > 1:
            return self
        first = max(0, self.before - (self.out - 1) * self.stride)
        kernel = min(self.kernel, self.before + self.size) - first
        return replace(self, kernel=kernel, before=self.before - first) if kernel > 0 else self

    def counts(self, with_padding: bool) -> Any:
        """Number of elements of each window, with or without padding."""
        places = self.place(np.arange(self.out)[:, None], np.arange(self.kernel)[None])
        if with_padding:
            return (places < self.size + self.behind).sum(1)
        return ((places >= 0) & (places < self.size)).sum(1)


def _axes(node: Primitive) -> list[_Axis]:
    image, out = node.shape(0)[2:], node.out_shape(0)[2:]
    kernel = sizes(node.attribute("kernel_shape"))
    strides = sizes(node.attribute("strides") or [1] * len(kernel))
    dilations = sizes(node.attribute("dilations") or [1] * len(kernel))
    pads = padding(node, image, tuple(kernel), strides, dilations)
    if min(pads, default=0) < 0:
        raise Unsupported("its padding is negative")
    if max(dilations, default=1) > 1 and str(node.attribute("auto_pad")).startswith("SAME"):
        raise Unsupported("with auto_pad and dilations, its shape differs between ONNX and ONNX Runtime")
    rows = zip(image, out, kernel, strides, dilations, pads[: len(kernel)], pads[len(kernel) :], strict=True)
    return [_Axis(*row) for row in rows]


def _pooled(x: relax.Expr, axes: Sequence[_Axis], kinds: dict[int, Any], **more: Any) -> relax.Expr:
    """A pooling operator of Relax, with the padding that results in ONNX's number of windows."""
    write, layout = kinds[len(axes)]
    return write(
        x,
        pool_size=[axis.kernel for axis in axes],
        strides=[axis.stride for axis in axes],
        dilation=[axis.dilation for axis in axes],
        padding=[*(axis.before for axis in axes), *(axis.filled for axis in axes)],
        layout=layout,
        **more,
    )


def _windows(
    node: Primitive, x: relax.Expr, axes: Sequence[_Axis], combine: Callable[..., Any], element: Any, outside: Any
) -> relax.Expr:
    """A reduction over windows, as a tensor expression.

    Args:
        node: The operator.
        x: The operand.
        axes: The windows along each axis.
        combine: A reducer such as ``te.sum``.
        element: Maps an element of the operand before the reduction.
        outside: The value of the padding.
    """
    shape = (*node.shape(0)[:2], *(axis.out for axis in axes))

    def compute(data: te.Tensor) -> te.Tensor:
        steps = [te.reduce_axis((0, axis.kernel), f"k{number}") for number, axis in enumerate(axes)]

        def window(batch: Any, channel: Any, *indices: Any) -> Any:
            places = [axis.place(index, step) for axis, index, step in zip(axes, indices, steps, strict=True)]
            inside = [condition for axis, place in zip(axes, places, strict=True) for condition in axis.inside(place)]
            result = element(data[(batch, channel, *places)])
            if inside:
                result = tirx.if_then_else(tirx.all(*inside), result, outside)
            return combine(result, axis=steps)

        return te.compute(shape, window, name="pool")

    return node.te(compute, x, name="pool")


@rule("MaxPool")
def max_pool(node: Primitive) -> Any:
    """Max pooling, with the positions of the maxima in the operand."""
    axes, dtype = [axis.trimmed() for axis in _axes(node)], node.dtype(0)
    if not axes:
        raise Unsupported("it has no spatial axes")
    x = node.emit(node.tensor(0))
    if len(axes) in _MAX_POOL:
        output = node.emit(_pooled(x, axes, _MAX_POOL))
    else:
        output = node.emit(_windows(node, x, axes, te.max, lambda item: item, tirx.min_value(dtype)))
    return [output, _places(node, x, output, axes)] if node.wants(1) else [output]


def _places(node: Primitive, x: relax.Expr, largest: relax.Expr, axes: Sequence[_Axis]) -> relax.Expr:
    """The first position of each window's maximum, in the flattened operand."""
    _, channels, *image = node.shape(0)
    # Ties are resolved in row-major order; with storage_order=1, the result is in column-major order.
    strides = [math.prod(image[number + 1 :]) for number in range(len(image))]
    columns = [math.prod(image[:number]) for number in range(len(image))]
    total = math.prod(image)

    def compute(data: te.Tensor, best: te.Tensor) -> te.Tensor:
        steps = [te.reduce_axis((0, axis.kernel), f"k{number}") for number, axis in enumerate(axes)]

        def window(*indices: Any) -> Any:
            places = [axis.place(index, step) for axis, index, step in zip(axes, indices[2:], steps, strict=True)]
            inside = [condition for axis, place in zip(axes, places, strict=True) for condition in axis.inside(place)]
            flat = sum(place * stride for place, stride in zip(places, strides, strict=True))
            value = data[(*indices[:2], *places)]
            none = tirx.const(total - 1, "int64")
            hit = tirx.Select(value == best[indices], flat.astype("int64"), none)
            if inside:
                hit = tirx.if_then_else(tirx.all(*inside), hit, none)
            return te.min(hit, axis=steps)

        first = te.compute(best.shape, window, name="place")

        def reported(*indices: Any) -> Any:
            result = first[indices]
            if node.attribute("storage_order"):
                parts = [
                    (tirx.floormod(tirx.floordiv(result, stride), size), column)
                    for stride, size, column in zip(strides, image, columns, strict=True)
                ]
                result = sum(part * column for part, column in parts)
            return ((indices[0] * channels + indices[1]) * total + result).astype("int64")

        return te.compute(best.shape, reported, name="index")

    return node.te(compute, x, largest, name="pool_index")


@rule("AveragePool")
def average_pool(node: Primitive) -> relax.Expr:
    """Average pooling, with or without padding.

    With ``ceil_mode``, a window that exceeds the padding has fewer elements.
    """
    axes, x = _axes(node), node.tensor(0)
    if not axes:
        raise Unsupported("it has no spatial axes")
    counts = [axis.counts(bool(node.attribute("count_include_pad"))) for axis in axes]
    # For empty windows, ONNX Runtime returns NaN or 0, depending on its version.
    counts = [np.maximum(count, 1) for count in counts]
    axes = [axis.trimmed() for axis in axes]
    whole = math.prod(axis.kernel for axis in axes)
    if len(axes) in _AVERAGE_POOL:
        average = _pooled(x, axes, _AVERAGE_POOL, count_include_pad=True)
    else:
        average = _windows(node, x, axes, te.sum, lambda item: item, tirx.const(0, node.dtype(0)))
        average = relax.op.divide(average, node.const(whole, node.dtype(0)))
    if all((count == axis.kernel).all() for axis, count in zip(axes, counts, strict=True)):
        return average
    factor = np.ones((1, 1))
    for entry, count in zip(axes, counts, strict=True):
        factor = factor[..., None] * (entry.kernel / count)
    return relax.op.multiply(average, node.const(factor, node.dtype(0)))


@rule("LpPool")
def lp_pool(node: Primitive) -> relax.Expr:
    """Lp pooling."""
    power, dtype = float(node.attribute("p", 2)), node.dtype(0)
    axes = [axis.trimmed() for axis in _axes(node)]

    def element(value: Any) -> Any:
        value = tirx.abs(value)
        if power in (1, 2, 3, 4):
            return reduce(operator.mul, [value] * int(power))
        return tirx.exp(tirx.log(value) * tirx.const(power, dtype))

    return _root(node, _windows(node, node.tensor(0), axes, te.sum, element, tirx.const(0, dtype)), power)


def _root(node: Primitive, total: relax.Expr, power: float) -> relax.Expr:
    if power == 1:
        return total
    if power == 2:
        return relax.op.sqrt(total)
    return relax.op.power(total, node.const(1 / power, node.dtype(0)))


@rule("GlobalMaxPool", "GlobalAveragePool")
def global_pool(node: Primitive) -> relax.Expr:
    """Global max and average pooling."""
    over = relax.op.max if node.operator == "GlobalMaxPool" else relax.op.mean
    axes = list(range(2, len(node.shape(0))))
    return over(node.tensor(0), axes, True) if axes else node.tensor(0)


@rule("GlobalLpPool")
def global_lp_pool(node: Primitive) -> relax.Expr:
    """Global Lp pooling."""
    power, x = float(node.attribute("p", 2)), node.emit(relax.op.abs(node.tensor(0)))
    if power in (1, 2, 3, 4):
        x = reduce(relax.op.multiply, [x] * int(power))
    else:
        x = relax.op.exp(relax.op.multiply(relax.op.log(x), node.const(power, node.dtype(0))))
    return _root(node, relax.op.sum(x, list(range(2, len(node.shape(0)))), True), power)


@rule("Col2Im")
def columns_to_image(node: Primitive) -> relax.Expr:
    """``Col2Im``: each output element sums the elements of the windows that cover it."""
    block = sizes(node.constant(2, "block_shape").tolist())
    out, dtype, rank = node.out_shape(), node.dtype(0), len(block)
    strides = sizes(node.attribute("strides") or [1] * rank)
    dilations = sizes(node.attribute("dilations") or [1] * rank)
    pads = sizes(node.attribute("pads") or [0] * (2 * rank))
    counts = [
        (size + pads[axis] + pads[rank + axis] - dilations[axis] * (block[axis] - 1) - 1) // strides[axis] + 1
        for axis, size in enumerate(out[2:])
    ]
    windows = relax.op.reshape(node.tensor(0), [*out[:2], *block, *counts])

    def compute(x: te.Tensor) -> te.Tensor:
        steps = [te.reduce_axis((0, size), f"k{number}") for number, size in enumerate(block)]

        def element(batch: Any, channel: Any, *indices: Any) -> Any:
            starts = [index + pads[axis] - steps[axis] * dilations[axis] for axis, index in enumerate(indices)]
            numbers = [tirx.floordiv(start, stride) for start, stride in zip(starts, strides, strict=True)]
            inside = []
            for start, number, stride, count in zip(starts, numbers, strides, counts, strict=True):
                inside += [start >= 0, number < count, *([tirx.floormod(start, stride) == 0] if stride > 1 else [])]
            value = x[(batch, channel, *steps, *numbers)]
            return te.sum(tirx.if_then_else(tirx.all(*inside), value, tirx.const(0, dtype)), axis=steps)

        return te.compute(out, element, name="col2im")

    return node.te(compute, windows, name="col2im")


@rule("MaxRoiPool")
def max_roi_pool(node: Primitive) -> relax.Expr:
    """RoI max pooling: first along the rows, then along the columns."""
    batch, channels, rows, columns = node.shape(0)
    dtype, scale = node.dtype(0), float(node.attribute("spatial_scale"))
    height, width = sizes(node.attribute("pooled_shape"))
    regions = node.shape(1)[0]

    def compute(x: te.Tensor, boxes: te.Tensor) -> te.Tensor:
        def bounds(region: Any, part: Any, parts: int, axis: int, size: int) -> tuple[Any, Any]:
            first, last = (_half_away(boxes[region, axis + at] * tirx.const(scale, dtype)) for at in (1, 3))
            length = tirx.max(last - first + 1, 1).astype(dtype) / tirx.const(parts, dtype)
            start = tirx.floor(part.astype(dtype) * length).astype("int32") + first
            end = tirx.ceil((part + 1).astype(dtype) * length).astype("int32") + first
            return tirx.min(tirx.max(start, 0), size), tirx.min(tirx.max(end, 0), size)

        lowest = tirx.min_value(dtype)
        row, column = te.reduce_axis((0, rows), "row"), te.reduce_axis((0, columns), "column")

        def along_rows(region: Any, channel: Any, part: Any, other: Any) -> Any:
            start, end = bounds(region, part, height, 1, rows)
            picture = tirx.min(tirx.max(boxes[region, 0].astype("int32"), 0), batch - 1)
            value = x[picture, channel, row, other]
            return te.max(tirx.if_then_else(tirx.all(row >= start, row < end), value, lowest), axis=row)

        tall = te.compute((regions, channels, height, columns), along_rows, name="rows")

        def along_columns(region: Any, channel: Any, part: Any, other: Any) -> Any:
            start, end = bounds(region, other, width, 0, columns)
            value = tall[region, channel, part, column]
            return te.max(tirx.if_then_else(tirx.all(column >= start, column < end), value, lowest), axis=column)

        result = te.compute((regions, channels, height, width), along_columns, name="columns")

        def filled(region: Any, channel: Any, part: Any, other: Any) -> Any:
            top, bottom = bounds(region, part, height, 1, rows)
            left, right = bounds(region, other, width, 0, columns)
            empty = tirx.any(bottom <= top, right <= left)
            return tirx.Select(empty, tirx.const(0, dtype), result[region, channel, part, other])

        return te.compute((regions, channels, height, width), filled, name="roi_pool")

    return node.te(compute, node.tensor(0), node.tensor(1), name="roi_pool")


def _half_away(value: Any) -> Any:
    """A coordinate rounded half away from zero, clamped to the range of an integer."""
    kept = tirx.min(tirx.max(value, -(2.0**24)), 2.0**24)
    return tirx.Select(kept >= 0, tirx.floor(kept + 0.5), tirx.ceil(kept - 0.5)).astype("int32")
