"""Compares a compiled network's outputs with its framework's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.measuring.verification import precision_of

#: The difference, relative to an output's largest value, that a rounding of this share explains after many layers.
_LAYERS = 300.0

#: Functions such as erf are approximated in float64 too.
_LEAST = 1e-8

#: Roundings to whole numbers, as of quantized networks, change an output by this, and so does what is no rounding.
_LARGEST = 0.05

Outputs = Sequence[npt.NDArray[Any]]


def limit(dtypes: Iterable[str]) -> float:
    """The difference from the framework, relative to an output's largest value, that the types of a network explain.

    Args:
        dtypes: The types of the values that its programs compute with.

    >>> f"{limit(['float32', 'int64']):.1g} {limit(['float16', 'float32']):.1g} {limit(['float32', 'int8']):.1g}"
    '0.0003 0.05 0.05'
    """
    found = set(dtypes)
    precision = precision_of(sorted(found))
    if precision and found & {"int8", "uint8"}:
        return _LARGEST
    if not precision:
        return 0.0
    return max(_LEAST, min(_LAYERS * precision, _LARGEST)) if precision <= 1e-3 else 3 * _LARGEST


def fault(outputs: Outputs, reference: Outputs, allowed: float, framework: str) -> str:
    """Why outputs are wrong, in a sentence without a subject; empty if they are right.

    Args:
        outputs: The network's.
        reference: The framework's.
        allowed: See :func:`limit`.
        framework: Its name.
    """
    if len(outputs) != len(reference):
        return f"gives {len(outputs)} outputs, and {framework} gives {len(reference)}"
    for number, (found, right) in enumerate(zip(outputs, reference, strict=True)):
        if (found.shape, found.dtype) != (right.shape, right.dtype):
            return (
                f"gives {found.dtype}{list(found.shape)} in output {number}, and {framework} gives "
                f"{right.dtype}{list(right.shape)}"
            )
        if not _same_places(found, right):
            return f"has NaN or infinity in output {number} where {framework} has none, or the other way round"
    difference = relative_difference(outputs, reference)
    if difference <= allowed:
        return ""
    return f"differs from {framework} by {100 * difference:.2g}% of an output's largest value"


def relative_difference(outputs: Outputs, reference: Outputs) -> float:
    """The largest difference of any output, relative to the largest value of that output's reference.

    Infinite if the outputs have other shapes, or NaN or infinity in other places.
    """
    if [one.shape for one in outputs] != [one.shape for one in reference]:
        return math.inf
    return max((_difference(*pair) for pair in zip(outputs, reference, strict=True)), default=0.0)


def tell_nothing(reference: Outputs) -> bool:
    """Whether outputs would be the same for most wrong networks: they are NaN, or all the same, in every output."""
    return not any(_tells(one) for one in reference)


def _tells(output: npt.NDArray[Any]) -> bool:
    values = output.astype(np.complex128 if output.dtype.kind == "c" else np.float64).ravel()
    finite = values[np.isfinite(values)]
    return bool(finite.size) and (values.size == 1 or bool((finite != finite[0]).any()))


def _difference(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> float:
    wide: Any = np.complex128 if "c" in (left.dtype.kind, right.dtype.kind) else np.float64
    one, other = left.astype(wide), right.astype(wide)
    finite = np.isfinite(one) & np.isfinite(other)
    if not _same_places(one, other):
        return math.inf
    largest = float(np.abs(other[finite]).max(initial=0.0)) or 1.0
    return float(np.abs(one[finite] - other[finite]).max(initial=0.0)) / largest


def _same_places(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> bool:
    """Whether NaN and infinities of each sign are in the same places."""
    if left.dtype.kind in "biu" and right.dtype.kind in "biu":
        return True
    one, other = (each if each.dtype.kind == "c" else each.astype(np.float64) for each in (left, right))
    odd = ~(np.isfinite(one) & np.isfinite(other))
    return bool(np.array_equal(one[odd], other[odd], equal_nan=True))
