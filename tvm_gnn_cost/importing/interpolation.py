"""Interpolation weights of ``Resize``, computed in NumPy because all shapes are static."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.importing.graph import Tensor
from tvm_gnn_cost.importing.simplify import Call, Expansion, Refused, Simplifier, Value

Floats = npt.NDArray[Any]
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ResizedAxis:
    """A resized axis.

    Attributes:
        axis: Its number.
        size: Its input size.
        scale: Output size / input size, before rounding.
        places: For each output element, its coordinate in the input.
        numbers: For each output element, the input elements that it is a weighted sum of.
        weights: Their weights; None for a single element.
    """

    axis: int
    size: int
    scale: float
    places: Floats
    numbers: Integers
    weights: Floats | None

    @property
    def out(self) -> int:
        """Its output size."""
        return len(self.numbers)

    def outside(self) -> npt.NDArray[np.bool_]:
        """Which output elements lie outside of the input."""
        result: npt.NDArray[np.bool_] = (self.places < 0) | (self.places > self.size - 1)
        return result


@dataclass(frozen=True)
class Resizing:
    """How a tensor is resized.

    Attributes:
        axes: The axes whose elements change.
        is_cubic, is_nearest, antialias: The mode.
        extrapolation: The value of elements outside; None without extrapolation.
    """

    axes: tuple[ResizedAxis, ...]
    is_nearest: bool
    is_cubic: bool
    antialias: bool
    extrapolation: float | None

    def outside(self, rank: int) -> npt.NDArray[np.bool_] | None:
        """Mask of the elements outside, of size 1 along axes that do not matter; None if there are none."""
        if self.extrapolation is None:
            return None
        output: Any = np.zeros([1] * rank, bool)
        for item in self.axes:
            output = output | item.outside().reshape([-1 if axis == item.axis else 1 for axis in range(rank)])
        return output if output.any() else None


def resizing(
    operator: str, version: int, attributes: Mapping[str, Any], shape: Sequence[int], operands: Sequence[Any]
) -> Resizing:
    """How ``Resize`` or ``Upsample`` resizes a tensor.

    Args:
        operator: ``Resize`` or ``Upsample``.
        version: The operator set version that its definition is from.
        attributes: Its attributes, including defaults.
        shape: The shape of the tensor.
        operands: All its operands; those after the first must be arrays or None.

    Raises:
        Refused: its use is invalid, or differs between ONNX and ONNX Runtime.
    """
    mode = str(attributes.get("mode", "nearest"))
    if mode not in ("nearest", "linear", "bilinear", "trilinear", "cubic"):
        raise Refused(f"mode '{mode}' is unknown")
    coordinates = str(attributes.get("coordinate_transformation_mode", "asymmetric"))
    crops = coordinates == "tf_crop_and_resize"
    rank = len(shape)
    given = attributes.get("axes")
    axes = list(range(rank)) if given is None else [int(item) % rank for item in given]
    factors, out = _factors(operator, version, attributes, [shape[axis] for axis in axes], operands)
    starts, ends = [0.0] * len(axes), [1.0] * len(axes)
    if crops:
        roi = _constant(operands, 1, "roi")
        if roi is None or len(roi) != 2 * len(axes):
            raise Refused("its roi does not fit its operand")
        starts, ends = roi[: len(axes)], roi[len(axes) :]
    results = []
    for axis, factor, size, start, end in zip(axes, factors, out, starts, ends, strict=True):
        if factor == 1 and size == shape[axis]:
            if (start, end) != (0, 1):
                raise Refused("cropping an axis at its own scale means something else in ONNX than in ONNX Runtime")
            continue
        if not shape[axis] or not size:
            raise Refused("it has no elements")
        places = _coordinates(coordinates, shape[axis], size, factor, start, end)
        if mode == "nearest" and coordinates == "half_pixel_symmetric":
            _check_certain(str(attributes.get("nearest_mode")), places)
        numbers, weights = (
            (_nearest(str(attributes.get("nearest_mode", "simple")), shape[axis], factor, places)[:, None], None)
            if mode == "nearest"
            else _weighted(mode == "cubic", attributes, shape[axis], factor, places)
        )
        if size == shape[axis]:
            # Its scale resizes it, its size does not.
            identity = numbers[:, 0] if weights is None else places
            if np.abs(identity - np.arange(size)).max() > 1e-5:
                raise Refused("an axis that keeps its size at another scale is resized by ONNX, not by ONNX Runtime")
            continue
        results.append(ResizedAxis(axis, shape[axis], float(factor), places, numbers, weights))
    extrapolation = float(attributes.get("extrapolation_value", 0.0)) if crops else None
    antialias = bool(attributes.get("antialias", 0)) and any(item.scale < 1 for item in results)
    return Resizing(tuple(results), mode == "nearest", mode == "cubic", antialias, extrapolation)


def _constant(operands: Sequence[Any], position: int, meaning: str) -> list[float] | None:
    value = operands[position] if position < len(operands) else None
    if value is None:
        return None
    if not isinstance(value, np.ndarray):
        raise Refused(f"its {meaning} must be constant")
    numbers: list[float] = value.reshape(-1).tolist()
    return numbers or None


def _factors(
    operator: str, version: int, attributes: Mapping[str, Any], shape: Sequence[int], operands: Sequence[Any]
) -> tuple[list[Any], list[int]]:
    """The scale of each axis, in float32, and the output shape."""
    position = 1 if operator == "Upsample" or version < 11 else 2
    scales = attributes.get("scales") if "scales" in attributes else _constant(operands, position, "scales")
    if scales is not None:
        factors = [np.float32(scale) for scale in scales]
        if len(factors) != len(shape) or min(factors) <= 0:
            raise Refused("its scales do not fit its operand")
        return factors, [int(np.floor(np.float32(size) * factor)) for size, factor in zip(shape, factors, strict=True)]
    wanted = _constant(operands, 3, "sizes")
    if wanted is None or len(wanted) != len(shape) or 0 in shape:
        raise Refused("its sizes do not fit its operand")
    factors = [np.float32(item) / np.float32(size) for item, size in zip(wanted, shape, strict=True)]
    policy = attributes.get("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return factors, [int(item) for item in wanted]
    # The smaller or larger ratio, for all axes.
    choose = min if policy == "not_larger" else max
    ratio = choose(item / size for item, size in zip(wanted, shape, strict=True))
    return [choose(factors)] * len(shape), [int(np.floor(ratio * size + 0.5)) for size in shape]


def _coordinates(mode: str, before: int, after: int, factor: Any, start: float, end: float) -> Floats:
    """The input coordinate of each output element, in float32 as ONNX Runtime computes it."""
    single = np.float32
    place, size, out, scale = np.arange(after, dtype=single), single(before), single(after), single(factor)
    half, whole = single(0.5), single(1)
    first, last = single(start), single(end)
    if mode == "asymmetric":
        return place / scale
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and after > 1):
        return (place + half) / scale - half
    if mode == "pytorch_half_pixel":
        return np.zeros(after, single)
    if mode == "tf_half_pixel_for_nn":
        return (place + half) / scale
    if mode == "half_pixel_symmetric":
        adjustment = out / (scale * size)
        return size / single(2) * (whole - adjustment) + (place + half) / scale - half
    if mode == "align_corners":
        if after > 1 and abs(scale * size - out) > 1e-3:
            raise Refused("scales that leave a fraction of an element mean something else in ONNX than in ONNX Runtime")
        return place * (size - whole) / (out - whole) if after > 1 else np.zeros(after, single)
    if mode == "tf_crop_and_resize":
        if after > 1:
            return first * (size - whole) + place * (last - first) * (size - whole) / (out - whole)
        return place + half * (first + last) * (size - whole)
    raise Refused(f"coordinate_transformation_mode '{mode}' is unknown")


def _nearest(mode: str, size: int, factor: Any, places: Floats) -> Integers:
    """The index of the nearest element for each coordinate."""
    # ONNX Runtime treats coordinates this close to the middle as the middle.
    exact, nearly = places.astype(np.float64), 0.5 + 1e-6
    rounded = {
        # Before there were modes.
        "simple": np.ceil(places) if factor < 1 else np.trunc(places),
        "floor": np.floor(places),
        "ceil": np.ceil(places),
        "round_prefer_floor": np.ceil(exact - nearly),
        "round_prefer_ceil": np.floor(exact + nearly),
    }
    if mode not in rounded:
        raise Refused(f"nearest_mode '{mode}' is unknown")
    return rounded[mode].clip(0, size - 1).astype(np.int64)


def _check_certain(mode: str, places: Floats) -> None:
    """Refuses coordinates whose rounding depends on the last bit.

    ONNX Runtime's computation of this mode is not known bit by bit.
    """
    if mode in ("floor", "ceil") and (np.abs(places - np.rint(places)) < 1e-5).any():
        raise Refused(f"it is uncertain to which element '{mode}' with half_pixel_symmetric leads")


def _weighted(
    is_cubic: bool, attributes: Mapping[str, Any], size: int, factor: Any, places: Floats
) -> tuple[Integers, Floats]:
    """The elements around each coordinate and their weights; downscaling widens the support."""
    exact = places.astype(np.float64)
    if not is_cubic:
        exact = exact.clip(0, size - 1)
    scale = min(1.0, float(factor)) if attributes.get("antialias", 0) else 1.0
    reach = int(np.ceil((2 if is_cubic else 1) / scale))
    first = np.floor(exact).astype(np.int64) - reach + 1
    numbers = first[:, None] + np.arange(2 * reach)
    away = np.abs(numbers - exact[:, None]) * scale
    weights = _cubic(away, float(attributes.get("cubic_coeff_a", -0.75))) if is_cubic else (1 - away).clip(0)
    weights = weights / weights.sum(1, keepdims=True)
    if attributes.get("exclude_outside", 0):
        weights = weights * ((numbers >= 0) & (numbers < size))
        weights = weights / weights.sum(1, keepdims=True)
    return numbers.clip(0, size - 1), weights


def _cubic(away: Floats, a: float) -> Floats:
    """Keys' cubic convolution kernel."""
    near = ((a + 2) * away - (a + 3)) * away * away + 1
    far = ((away - 5) * away + 8) * away * a - 4 * a
    weights: Floats = np.where(away <= 1, near, np.where(away < 2, far, 0))
    return weights


def resize_constant(_: Simplifier, call: Call) -> Sequence[Value] | None:
    """``Resize`` and ``Upsample`` of a constant; None for a tensor."""
    value = call.input(0)
    if not isinstance(value, np.ndarray):
        if not isinstance(value, Tensor):
            raise Refused("it takes a sequence")
        return None
    plan = resizing(call.node.op_type, call.version, call.attributes, value.shape, call.inputs)
    if value.dtype.kind in "iub" and not plan.is_nearest:
        return None
    resized = value if plan.is_nearest else value.astype(np.float64)
    for axis in plan.axes:
        if axis.weights is None:
            resized = resized.take(axis.numbers[:, 0], axis.axis)
        else:
            whole = np.zeros((axis.out, axis.size))
            np.add.at(whole, (np.arange(axis.out)[:, None], axis.numbers), axis.weights)
            resized = np.moveaxis(np.tensordot(whole, resized, (1, axis.axis)), 0, axis.axis)
    outside = plan.outside(value.ndim)
    if outside is not None:
        resized = np.where(outside, plan.extrapolation or 0.0, resized)
    return [resized.astype(value.dtype)]


#: Operator -> its expansion.
EXPANSIONS: Mapping[str, Expansion] = {"Resize": resize_constant, "Upsample": resize_constant}
