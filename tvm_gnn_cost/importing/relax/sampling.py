"""Operators that interpolate at coordinates that are computed when the network runs."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from tvm import relax, te, tirx

from tvm_gnn_cost.importing.relax.rules import Primitive, Unsupported, rule, sizes

#: A tap of an interpolation along an axis: index, weight, and a condition for the element to exist.
_Tap = tuple[Any, Any, Any]


@rule("GridSample")
def grid_sample(node: Primitive) -> relax.Expr:
    """Grid sampling: coordinates are in [-1, 1]."""
    shape, out, dtype = node.shape(0), node.out_shape(), node.dtype(0)
    image = shape[2:]
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(node.attribute("mode"), node.attribute("mode"))
    padding, aligned = str(node.attribute("padding_mode")), bool(node.attribute("align_corners"))
    if mode not in _TAPS:
        raise Unsupported(f"mode '{mode}' is unknown")
    if padding not in ("zeros", "border", "reflection"):
        raise Unsupported(f"padding_mode '{padding}' is unknown")

    def compute(x: te.Tensor, grid: te.Tensor) -> te.Tensor:
        def place(axis: int) -> te.Tensor:
            size = image[axis]

            def coordinate(*indices: Any) -> Any:
                # The last coordinate of the grid belongs to the first spatial axis.
                given = grid[(*indices, len(image) - 1 - axis)]
                result = (given + 1) / 2 * (size - 1) if aligned else ((given + 1) * size - 1) / 2
                if mode == "nearest":
                    result = tirx.nearbyint(result)
                # Cubic weights extend over the border, where elements are repeated.
                if padding == "border" and mode != "cubic":
                    return tirx.min(tirx.max(result, 0), size - 1)
                if padding == "reflection":
                    return _reflected(result, size, aligned)
                # Clamped farther outside, where the result is constant.
                return tirx.min(tirx.max(result, -3), size + 2)

            return te.compute((out[0], *out[2:]), coordinate, name=f"place{axis}")

        places = [place(axis) for axis in range(len(image))]

        def element(batch: Any, channel: Any, *indices: Any) -> Any:
            taps = [
                _placed(_TAPS[mode](place[(batch, *indices)]), size, padding, aligned)
                for place, size in zip(places, image, strict=True)
            ]
            return _combined(taps, lambda at: x[(batch, channel, *at)], dtype)

        return te.compute(out, element, name="grid_sample")

    grid = node.tensor(1)
    if node.dtype(1) != dtype:
        grid = relax.op.astype(grid, dtype)
    return node.te(compute, node.tensor(0), grid, name="grid_sample")


def _reflected(place: Any, size: int, aligned: bool) -> Any:
    """A coordinate reflected at the centers or the outer edges of the border elements."""
    low, high = (0.0, size - 1.0) if aligned else (-0.5, size - 0.5)
    if high == low:
        return tirx.min(tirx.max(place, low), high)
    away = tirx.abs(place - low)
    times = tirx.floor(away / (high - low))
    rest = away - times * (high - low)
    is_even = times == tirx.floor(times / 2) * 2
    output = tirx.Select(tirx.all(place >= low, place <= high), place, tirx.Select(is_even, low + rest, high - rest))
    return tirx.min(tirx.max(output, low), high)


def _nearest(place: Any) -> list[tuple[Any, Any]]:
    return [(place.astype("int32"), None)]


def _linear(place: Any) -> list[tuple[Any, Any]]:
    low = tirx.floor(place)
    first = low.astype("int32")
    return [(first, 1 - (place - low)), (first + 1, place - low)]


def _cubic(place: Any) -> list[tuple[Any, Any]]:
    """Keys' cubic convolution kernel with a = -0.75."""
    low, a = tirx.floor(place), -0.75
    first, t = low.astype("int32"), place - low

    def near(x: Any) -> Any:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Any) -> Any:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    weights = (far(t + 1), near(t), near(1 - t), far(2 - t))
    return [(first + number - 1, weight) for number, weight in enumerate(weights)]


#: Mode -> the indices of the elements around a coordinate and their weights.
_TAPS: dict[str, Callable[[Any], list[tuple[Any, Any]]]] = {"nearest": _nearest, "linear": _linear, "cubic": _cubic}


def _placed(taps: Sequence[tuple[Any, Any]], size: int, padding: str, aligned: bool = False) -> list[_Tap]:
    """The taps along an axis, with indices outside of it replaced according to the padding mode."""
    results: list[_Tap] = []
    for number, weight in taps:
        inside = tirx.all(number >= 0, number < size) if padding == "zeros" else None
        if padding == "reflection":
            period = max(1, 2 * (size - 1) if aligned else 2 * size)
            back = tirx.floormod(number, period)
            number = tirx.min(back, period - back if aligned else period - 1 - back)
        results.append((tirx.min(tirx.max(number, 0), size - 1), weight, inside))
    return results


def _combined(axes: Sequence[Sequence[_Tap]], read: Callable[[list[Any]], Any], dtype: str) -> Any:
    """The weighted sum over all axes."""
    terms = []
    for taps in itertools.product(*axes):
        value = read([number for number, _, _ in taps])
        conditions = [inside for _, _, inside in taps if inside is not None]
        if conditions:
            value = tirx.Select(tirx.all(*conditions), value, tirx.const(0, dtype))
        weights = [weight for _, weight, _ in taps if weight is not None]
        terms.append(reduce(operator.mul, weights) * value if weights else value)
    return reduce(operator.add, terms)


@rule("DeformConv")
def deformed_convolution(node: Primitive) -> relax.Expr:
    """Deformable convolution."""
    shape, kernel, out, dtype = node.shape(0), node.shape(1)[2:], node.out_shape(), node.dtype(0)
    batch, channels, *image = shape
    axes, groups, offset_groups = len(kernel), int(node.attribute("group")), int(node.attribute("offset_group"))
    strides = sizes(node.attribute("strides") or [1] * axes)
    dilations = sizes(node.attribute("dilations") or [1] * axes)
    pads = sizes(node.attribute("pads") or [0] * (2 * axes))
    window, spatial = math.prod(kernel), out[2:]
    spans = [math.prod(kernel[axis + 1 :]) for axis in range(axes)]

    def compute(x: te.Tensor, offsets: te.Tensor, *masks: te.Tensor) -> te.Tensor:
        def place(axis: int) -> te.Tensor:
            def coordinate(picture: Any, group: Any, step: Any, *indices: Any) -> Any:
                tap = tirx.floormod(tirx.floordiv(step, spans[axis]), kernel[axis])
                start = indices[axis] * strides[axis] - pads[axis] + tap * dilations[axis]
                moved = offsets[(picture, (group * window + step) * axes + axis, *indices)]
                return tirx.min(tirx.max(start.astype(dtype) + moved, -2), image[axis] + 1)

            return te.compute((batch, offset_groups, window, *spatial), coordinate, name=f"place{axis}")

        places = [place(axis) for axis in range(axes)]

        def element(picture: Any, channel: Any, step: Any, *indices: Any) -> Any:
            group = tirx.floordiv(channel, channels // offset_groups)
            taps = [
                _placed(_linear(place[(picture, group, step, *indices)]), size, "zeros")
                for place, size in zip(places, image, strict=True)
            ]
            value = _combined(taps, lambda at: x[(picture, channel, *at)], dtype)
            return value * masks[0][(picture, group * window + step, *indices)] if masks else value

        return te.compute((batch, channels, window, *spatial), element, name="windows")

    mask = [node.tensor(4)] if node.has(4) else []
    windows = node.te(compute, node.tensor(0), node.tensor(2), *mask, name="deformed_windows")
    inner = channels // groups * window
    windows = relax.op.reshape(windows, [batch, groups, inner, math.prod(spatial)])
    weights = relax.op.reshape(node.tensor(1), [groups, out[1] // groups, inner])
    convolved = relax.op.reshape(relax.op.matmul(weights, windows), out)
    if not node.has(3):
        return convolved
    return relax.op.add(convolved, relax.op.reshape(node.tensor(3), [1, out[1], *[1] * axes]))


@rule("RoiAlign")
def roi_align(node: Primitive) -> relax.Expr:
    """RoI align."""
    samples, mode = int(node.attribute("sampling_ratio")), str(node.attribute("mode"))
    if mode not in ("avg", "max"):
        raise Unsupported(f"mode '{mode}' is unknown")
    if samples <= 0 and mode == "max":
        raise Unsupported("with mode 'max', sampling_ratio must be given")
    regions = _Regions(node)
    boxes = node.tensor(1)
    if node.dtype(1) != regions.dtype:
        boxes = relax.op.astype(boxes, regions.dtype)
    write = regions.sampled if samples > 0 else regions.weighted
    return node.te(write, node.tensor(0), boxes, node.tensor(2), name="roi_align")


class _Regions:
    """RoI align as tensor expressions."""

    def __init__(self, node: Primitive) -> None:
        self.out, self.dtype = node.out_shape(), node.dtype(0)
        self.pictures, self.image = node.shape(0)[0], node.shape(0)[2:]
        self.scale = tirx.const(float(node.attribute("spatial_scale")), self.dtype)
        self.samples, self.mode = int(node.attribute("sampling_ratio")), str(node.attribute("mode"))
        self.is_shifted = node.attribute("coordinate_transformation_mode") == "half_pixel"

    def picture(self, batch: te.Tensor, region: Any) -> Any:
        """The index of a region's image, clamped."""
        return tirx.min(tirx.max(batch[region], 0), self.pictures - 1)

    def part(self, boxes: te.Tensor, region: Any, axis: int) -> tuple[Any, Any]:
        """The start of a region along an axis, and the length of its bins."""
        start, end = (boxes[region, 1 - axis + 2 * side] * self.scale for side in (0, 1))
        if self.is_shifted:
            start, end = start - 0.5, end - 0.5
        length = end - start
        if not self.is_shifted:
            length = tirx.max(length, 1)
        return start, length / self.out[2 + axis]

    def sampled(self, x: te.Tensor, boxes: te.Tensor, batch: te.Tensor) -> te.Tensor:
        """With a constant number of samples per bin."""
        count = self.samples

        def place(axis: int) -> te.Tensor:
            def coordinate(region: Any, part: Any, sample: Any) -> Any:
                start, length = self.part(boxes, region, axis)
                middle = (sample.astype(self.dtype) + 0.5) * length / count
                result = start + part.astype(self.dtype) * length + middle
                # Coordinates more than one element away are outside.
                return tirx.min(tirx.max(result, -2), self.image[axis] + 1)

            return te.compute((self.out[0], self.out[2 + axis], count), coordinate, name=f"place{axis}")

        places = [place(axis) for axis in (0, 1)]
        steps = [te.reduce_axis((0, count), name) for name in ("row", "column")]

        def taps(value: Any, size: int) -> list[_Tap]:
            inside = tirx.all(value >= -1, value <= size)
            kept = tirx.min(tirx.max(value, 0), size - 1)
            return [(number, weight, inside) for number, weight, _ in _placed(_linear(kept), size, "border")]

        def sample(region: Any, channel: Any, row: Any, column: Any) -> Any:
            picture = self.picture(batch, region)
            values = (places[0][region, row, steps[0]], places[1][region, column, steps[1]])
            both = [taps(value, size) for value, size in zip(values, self.image, strict=True)]
            if self.mode == "avg":
                return te.sum(_combined(both, lambda at: x[(picture, channel, *at)], self.dtype), axis=steps)
            # As in ONNX Runtime, the maximum of the weighted elements, not of their sums.
            terms = [
                _combined([[tap], [other]], lambda at: x[(picture, channel, *at)], self.dtype)
                for tap, other in itertools.product(*both)
            ]
            return te.max(reduce(tirx.max, terms), axis=steps)

        samples = te.compute(self.out, sample, name="samples")
        if self.mode == "max":
            return samples
        return te.compute(self.out, lambda *i: samples[i] / (count * count), name="mean")

    def weighted(self, x: te.Tensor, boxes: te.Tensor, batch: te.Tensor) -> te.Tensor:
        """With a number of samples that depends on the region's size: each element has a weight per bin and axis."""

        def samples(region: Any, axis: int) -> Any:
            _, length = self.part(boxes, region, axis)
            return tirx.min(tirx.max(tirx.ceil(length), 0), 2.0**30)

        def weights(axis: int) -> te.Tensor:
            size = self.image[axis]
            # Samples are more than half an element apart, so an element contributes to at most five.
            step = te.reduce_axis((0, 7), "sample")

            def weight(region: Any, part: Any, number: Any) -> Any:
                start, length = self.part(boxes, region, axis)
                count = samples(region, axis)
                apart = length / tirx.max(count, 1)
                begin = start + part.astype(self.dtype) * length
                first = (number.astype(self.dtype) - 1 - begin) / tirx.max(apart, 1e-6)
                first = tirx.min(tirx.max(tirx.floor(first) - 1, 0), 2.0**30)
                sample = first + step.astype(self.dtype)
                place = begin + (sample + 0.5) * apart
                inside = tirx.all(sample < count, place >= -1, place <= size)
                kept = tirx.min(tirx.max(place, 0), size - 1)
                share = tirx.max(1 - tirx.abs(kept - number.astype(self.dtype)), 0)
                return te.sum(tirx.Select(inside, share, tirx.const(0, self.dtype)), axis=step)

            return te.compute((self.out[0], self.out[2 + axis], size), weight, name=f"weights{axis}")

        tall, wide = weights(0), weights(1)
        row, column = te.reduce_axis((0, self.image[0]), "row"), te.reduce_axis((0, self.image[1]), "column")

        def along_rows(region: Any, channel: Any, part: Any, other: Any) -> Any:
            return te.sum(tall[region, part, row] * x[self.picture(batch, region), channel, row, other], axis=row)

        rows = te.compute((*self.out[:3], self.image[1]), along_rows, name="rows")

        def along_columns(region: Any, channel: Any, part: Any, other: Any) -> Any:
            return te.sum(wide[region, other, column] * rows[region, channel, part, column], axis=column)

        columns = te.compute(self.out, along_columns, name="columns")

        def mean(region: Any, *indices: Any) -> Any:
            return columns[(region, *indices)] / tirx.max(samples(region, 0) * samples(region, 1), 1)

        return te.compute(self.out, mean, name="mean")
