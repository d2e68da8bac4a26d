"""Compares a compiled network's outputs with its framework's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.measuring.verification import precision_of

#: Accumulated rounding errors of a deep network's outputs, in multiples of the precision of its dtype.
_LAYERS = 300.0

#: Lower bound of the tolerance: functions such as erf are approximations, in float64 too.
_LEAST = 1e-8

#: Upper bound of the tolerance, and the tolerance of quantized networks.
_LARGEST = 0.05

Outputs = Sequence[npt.NDArray[Any]]


def limit(dtypes: Iterable[str]) -> float:
    """The tolerated difference from the framework, relative to an output's largest value.

    Args:
        dtypes: The dtypes that the network computes with.

    >>> f"{limit(['float32', 'int64']):.1g} {limit(['float16', 'float32']):.1g} {limit(['float32', 'int8']):.1g}"
    '0.0003 0.05 0.05'
    """
    names = set(dtypes)
    precision = precision_of(sorted(names))
    if precision and names & {"int8", "uint8"}:
        return _LARGEST
    if not precision:
        return 0.0
    return max(_LEAST, min(_LAYERS * precision, _LARGEST)) if precision <= 1e-3 else 3 * _LARGEST


def fault(outputs: Outputs, reference: Outputs, allowed: float, framework: str) -> str:
    """What is wrong with outputs, as a predicate; empty if they are correct.

    Args:
        outputs: The network's.
        reference: The framework's.
        allowed: See :func:`limit`.
        framework: Its name.
    """
    if len(outputs) != len(reference):
        return f"has {len(outputs)} outputs, but {framework} has {len(reference)}"
    for number, (output, expected) in enumerate(zip(outputs, reference, strict=True)):
        if (output.shape, output.dtype) != (expected.shape, expected.dtype):
            return (
                f"returns {output.dtype}{list(output.shape)} as output {number}, but {framework} returns "
                f"{expected.dtype}{list(expected.shape)}"
            )
        if not _same_positions(output, expected):
            return f"has NaN or infinity in output {number} at other positions than {framework}"
    difference = relative_difference(outputs, reference)
    if difference <= allowed:
        return ""
    return f"differs from {framework} by {100 * difference:.2g}% of an output's largest value"


def relative_difference(outputs: Outputs, reference: Outputs) -> float:
    """The largest difference of any output, relative to the largest value of that output's reference.

    Infinite if the shapes differ, or the positions of NaN or infinity.
    """
    if [output.shape for output in outputs] != [output.shape for output in reference]:
        return math.inf
    return max((_difference(*pair) for pair in zip(outputs, reference, strict=True)), default=0.0)


def tell_nothing(reference: Outputs) -> bool:
    """Whether outputs cannot verify a network: every output is constant or has no finite value."""
    return not any(_tells(output) for output in reference)


def _tells(output: npt.NDArray[Any]) -> bool:
    values = output.astype(np.complex128 if output.dtype.kind == "c" else np.float64).ravel()
    finite = values[np.isfinite(values)]
    return bool(finite.size) and (values.size == 1 or bool((finite != finite[0]).any()))


def _difference(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> float:
    wide: Any = np.complex128 if "c" in (left.dtype.kind, right.dtype.kind) else np.float64
    wide_left, wide_right = left.astype(wide), right.astype(wide)
    finite = np.isfinite(wide_left) & np.isfinite(wide_right)
    if not _same_positions(wide_left, wide_right):
        return math.inf
    largest = float(np.abs(wide_right[finite]).max(initial=0.0)) or 1.0
    return float(np.abs(wide_left[finite] - wide_right[finite]).max(initial=0.0)) / largest


def _same_positions(left: npt.NDArray[Any], right: npt.NDArray[Any]) -> bool:
    """Whether NaN and infinities of each sign are at the same positions."""
    if left.dtype.kind in "biu" and right.dtype.kind in "biu":
        return True
    wide_left, wide_right = (side if side.dtype.kind == "c" else side.astype(np.float64) for side in (left, right))
    odd = ~(np.isfinite(wide_left) & np.isfinite(wide_right))
    return bool(np.array_equal(wide_left[odd], wide_right[odd], equal_nan=True))
