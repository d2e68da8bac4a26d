"""How many windows pooling has: ONNX's inference of sizes counts some that its specification leaves out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

#: Operators over windows that may count those that reach over the end.
POOLS = frozenset(("AveragePool", "LpPool", "MaxPool"))


def counted(attributes: Mapping[str, Any], image: Sequence[int], windows: Sequence[int]) -> list[int]:
    """The numbers of windows along each axis, without those that start behind the operand and the padding before it.

    Args:
        attributes: Of the operator.
        image: The operand's spatial sizes.
        windows: The numbers that ONNX infers.

    >>> counted({"ceil_mode": 1, "strides": [2], "pads": [1, 1]}, [17], [10])
    [9]
    """
    axes = len(image)
    mode = attributes.get("auto_pad") or "NOTSET"
    if not attributes.get("ceil_mode") or mode not in ("NOTSET", "VALID"):
        return list(windows)
    strides = attributes.get("strides") or [1] * axes
    pads = (attributes.get("pads") if mode == "NOTSET" else None) or [0] * (2 * axes)
    return [
        count - ((count - 1) * stride >= size + before)
        for count, stride, size, before in zip(windows, strides, image, pads[:axes], strict=True)
    ]
