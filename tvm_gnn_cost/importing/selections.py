"""Expands operators that select or place elements. The size of a selection must be known before the network runs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tvm_gnn_cost.importing.graph import Tensor
from tvm_gnn_cost.importing.simplify import Call, Expansion, Refused, Simplifier, Value


def compress(simplifier: Simplifier, call: Call) -> Sequence[Value]:
    """``Compress``: the elements of an axis that a constant condition chooses."""
    condition = call.input(1)
    if not isinstance(condition, np.ndarray):
        raise Refused("the size of its output depends on a condition that is only known when it runs")
    value, axis = call.tensor(0), call.attributes.get("axis")
    if axis is None:
        count = int(np.prod(value.shape, dtype=np.int64))
        value, axis = simplifier.emit("Reshape", value, np.array([count], np.int64), name=call.name), 0
    places = np.flatnonzero(condition[: value.shape[axis]])
    return [simplifier.emit("Gather", value, places, axis=axis, name=call.name)]


def unknown(_: Simplifier, __: Call) -> Sequence[Value]:
    """Operators whose output shape depends on operands that are not constant.

    Raises:
        Refused: always; with constant operands they are folded before.
    """
    raise Refused("the size of its output depends on values that are only known when it runs")


def unpool(simplifier: Simplifier, call: Call) -> Sequence[Value]:
    """``MaxUnpool``: scatters elements to the positions from which pooling took them, zeros elsewhere.

    The positions refer to the smallest operand that pooling may have had; zeros pad it if ``output_shape`` is larger.
    """
    x = call.input(0)
    if not isinstance(x, Tensor | np.ndarray):
        raise Refused("it takes a sequence")
    kernel = list(call.attributes["kernel_shape"])
    axes = len(kernel)
    strides = call.attributes.get("strides") or [1] * axes
    pads = call.attributes.get("pads") or [0] * (2 * axes)
    image = [
        (size - 1) * stride - before - behind + width
        for size, stride, width, before, behind in zip(
            x.shape[2:], strides, kernel, pads[:axes], pads[axes:], strict=True
        )
    ]
    whole = [*x.shape[:2], *image]
    wanted = whole
    if call.input(2) is not None:
        wanted = [int(item) for item in call.constant(2, "output_shape")]
        if any(item < size for item, size in zip(wanted, whole, strict=True)):
            raise Refused("its output_shape is smaller than its other attributes imply")
    name, flat = call.name, np.array([-1], np.int64)
    # Older operator sets lack some of these operators.
    with simplifier.at_opset(18):
        values = simplifier.emit("Reshape", x, flat, name=name)
        places = simplifier.emit("Reshape", call.input(1), flat, name=name)
        zeros = np.zeros(math.prod(whole), x.dtype)
        result = simplifier.emit("ScatterElements", zeros, places, values, name=name, axis=0)
        result = simplifier.emit("Reshape", result, np.array(whole, np.int64), name=name)
        if wanted != whole:
            behind = np.array([*[0] * len(whole), *np.subtract(wanted, whole)], np.int64)
            result = simplifier.emit("Pad", result, behind, name=name)
    return [result]


#: Operator -> its expansion.
EXPANSIONS: dict[str, Expansion] = {
    "Compress": compress,
    "MaxUnpool": unpool,
    "NonZero": unknown,
    "NonMaxSuppression": unknown,
    "Unique": unknown,
}
