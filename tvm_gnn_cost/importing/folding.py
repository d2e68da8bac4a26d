"""Computes sizes and constants of a network with ONNX's own reference implementation; nothing is compiled."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper
from onnx.reference import ReferenceEvaluator

#: Operators with random results.
RANDOM = frozenset(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)

#: Operators for which ONNX's reference evaluator deviates from the specification for some attributes.
_WRONG = frozenset(
    (
        *("AveragePool", "GlobalLpPool", "GlobalMaxPool", "GridSample", "LpPool", "MaxPool", "MaxRoiPool"),
        *("Resize", "RoiAlign", "Upsample"),
    )
)


def evaluate(
    node: onnx.NodeProto, inputs: Sequence[npt.NDArray[Any] | None], opsets: Sequence[onnx.OperatorSetIdProto]
) -> tuple[npt.NDArray[Any], ...] | None:
    """Evaluates an operator on constants.

    Args:
        node: The operator.
        inputs: Its operands; None for an omitted one.
        opsets: The operator sets of its definition.

    Returns:
        The outputs; None if ONNX's evaluator cannot compute them reliably.
    """
    if node.op_type in RANDOM or node.op_type in _WRONG:
        return None
    unnamed = onnx.TypeProto()
    feed = {name: value for name, value in zip(node.input, inputs, strict=True) if value is not None}
    graph = helper.make_graph(
        [node],
        "constant",
        [helper.make_value_info(name, unnamed) for name in feed],
        [helper.make_value_info(name, unnamed) for name in node.output if name],
    )
    # The evaluator raises errors of any type for what it lacks; NumPy warns about intended infinities.
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            result = ReferenceEvaluator(helper.make_model(graph, opset_imports=opsets)).run(None, feed)
    except Exception:
        return None
    given = iter(result if isinstance(result, list | tuple) else [result])
    outputs = [next(given) if name else None for name in node.output]
    if not all(output is None or isinstance(output, np.ndarray | np.generic) for output in outputs):
        return None
    return tuple(np.empty(0) if output is None else np.asarray(output) for output in outputs)


#: Pooling operators with ``ceil_mode``.
POOLS = frozenset(("AveragePool", "LpPool", "MaxPool"))


def counted(attributes: Mapping[str, Any], image: Sequence[int], windows: Sequence[int]) -> list[int]:
    """Number of windows along each axis, without those that start in the padding after the operand.

    Args:
        attributes: The operator's attributes.
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
