"""Folds batch norms, and per-channel factors and summands, into the weights and bias of the operator before them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.importing.graph import Graph, Node, Operand, Tensor, live_nodes
from tvm_gnn_cost.importing.simplify import Call, Expansion, Refused, Simplifier

_Channels = npt.NDArray[np.float64]

#: Types of weights that are folded; narrower types would lose precision by a second rounding.
_TYPES = (np.dtype(np.float32), np.dtype(np.float64))


def affine(parameters: Sequence[npt.NDArray[Any]], epsilon: float) -> tuple[_Channels, _Channels]:
    """The affine function that a batch norm with constant statistics computes.

    Args:
        parameters: Scale, offset, mean and variance of each channel.
        epsilon: Added to the variance.

    Returns:
        A factor and a summand for each channel.
    """
    scale, offset, mean, variance = (parameter.astype(np.float64) for parameter in parameters)
    factor = scale / np.sqrt(variance + epsilon)
    return factor, offset - mean * factor


@dataclass(frozen=True)
class _Step:
    """A factor and a summand for each channel of a value."""

    value: Tensor
    factor: _Channels
    summand: _Channels


def fold(graph: Graph) -> Graph:
    """Folds batch norms, and per-channel factors and summands, into the weights of the operators before them.

    All parameters must be constants, and the operator before must be a Conv, ConvTranspose or Gemm with constant
    weights whose output has no other reader. The new weights are computed in float64.
    """
    uses = graph.uses()
    makers: dict[Tensor, Node] = {}
    nodes = []
    for node in graph.nodes:
        step = _step(node)
        if step is not None and uses[step.value] == 1 and step.value in makers:
            node = _folded(makers[step.value], step, node) or node
        makers.update(dict.fromkeys(node.outputs, node))
        nodes.append(node)
    kept = live_nodes(nodes, [item for _, item in graph.outputs])
    return replace(graph, nodes=kept)


def _step(node: Node) -> _Step | None:
    """The per-channel affine function that an operator computes; None if it computes anything else."""
    if node.operator == "BatchNormalization":
        return _of_batch_norm(node)
    if node.operator not in ("Add", "Sub", "Mul", "Div") or node.version < 7:
        return None
    left, right = node.inputs
    if isinstance(left, np.ndarray) and node.operator in ("Add", "Mul"):
        left, right = right, left
    if not isinstance(left, Tensor) or not isinstance(right, np.ndarray) or node.outputs[0].shape != left.shape:
        return None
    values = _per_channel(right, left.shape)
    if values is None:
        return None
    one, zero = np.ones_like(values), np.zeros_like(values)
    with np.errstate(all="ignore"):
        factor, summand = {
            "Add": (one, values),
            "Sub": (one, -values),
            "Mul": (values, zero),
            "Div": (1 / values, zero),
        }[node.operator]
    return _Step(left, factor, summand)


def _of_batch_norm(node: Node) -> _Step | None:
    value, parameters = node.inputs[0], node.inputs[1:5]
    if node.attributes.get("training_mode") or any(output.name for output in node.outputs[1:]):
        return None
    arrays = [parameter for parameter in parameters if isinstance(parameter, np.ndarray) and parameter.ndim == 1]
    if not isinstance(value, Tensor) or len(arrays) < len(parameters):
        return None
    with np.errstate(all="ignore"):
        return _Step(value, *affine(arrays, float(node.attributes["epsilon"])))


def _per_channel(values: npt.NDArray[Any], shape: tuple[int, ...]) -> _Channels | None:
    """A constant as one number per channel of the value that it is broadcast to; None if it varies otherwise."""
    if len(shape) < 2 or values.ndim > len(shape):
        return None
    whole = values.reshape((1,) * (len(shape) - values.ndim) + values.shape)
    if any(size != 1 for axis, size in enumerate(whole.shape) if axis != 1):
        return None
    return np.broadcast_to(whole.reshape(-1).astype(np.float64), (shape[1],))


def _folded(maker: Node, step: _Step, node: Node) -> Node | None:
    """The operator with the affine function folded into its weights; None if that is impossible."""
    weights = maker.inputs[1] if len(maker.inputs) > 1 else None
    dtype = node.outputs[0].dtype
    if maker.operator not in _SCALED or not isinstance(weights, np.ndarray) or dtype not in _TYPES:
        return None
    given = maker.inputs[2] if len(maker.inputs) > 2 else None
    attributes = dict(maker.attributes)
    factor = step.factor
    if maker.operator == "Gemm":
        if maker.version < 7:
            return None
        # alpha multiplies the product and not the bias.
        beta, attributes["beta"] = float(attributes["beta"]), 1.0
    else:
        beta = 1.0
    bias = _bias(given, factor.shape)
    if bias is None:
        return None
    with np.errstate(all="ignore"):
        changed = _SCALED[maker.operator](weights.astype(np.float64), factor, attributes).astype(dtype)
        summand = (bias * beta * factor + step.summand).astype(dtype)
    if not np.isfinite(changed).all() or not np.isfinite(summand).all():
        return None
    inputs = (maker.inputs[0], changed, summand)
    return replace(maker, inputs=inputs, outputs=node.outputs[:1], attributes=attributes)


def _bias(given: Operand, shape: tuple[int, ...]) -> _Channels | None:
    """A bias as one number per channel; None if it is not constant or varies otherwise."""
    if given is None:
        return np.zeros(shape)
    if not isinstance(given, np.ndarray) or any(size != 1 for size in given.shape[:-1]):
        return None
    return np.broadcast_to(given.reshape(-1).astype(np.float64), shape)


def _scaled_convolution(weights: npt.NDArray[Any], factor: _Channels, _: dict[str, Any]) -> npt.NDArray[Any]:
    return weights * factor.reshape(-1, *[1] * (weights.ndim - 1))


def _scaled_transposed(weights: npt.NDArray[Any], factor: _Channels, attributes: dict[str, Any]) -> npt.NDArray[Any]:
    groups = int(attributes["group"])
    inputs, outputs, *kernel = weights.shape
    parts = weights.reshape(groups, inputs // groups, outputs, *kernel)
    return (parts * factor.reshape(groups, 1, outputs, *[1] * len(kernel))).reshape(weights.shape)


def _scaled_product(weights: npt.NDArray[Any], factor: _Channels, attributes: dict[str, Any]) -> npt.NDArray[Any]:
    return weights * (factor.reshape(-1, 1) if attributes["transB"] else factor)


#: How the weights of each operator are scaled per output channel.
_SCALED = {"Conv": _scaled_convolution, "ConvTranspose": _scaled_transposed, "Gemm": _scaled_product}


def _in_inference(_: Simplifier, call: Call) -> None:
    """``BatchNormalization`` in inference, unchanged; before there was an attribute, further outputs meant training."""
    if call.version < 14 and any(call.node.output[1:]):
        raise Refused("it is exported for training")


#: Refuses operators in training mode.
EXPANSIONS: dict[str, Expansion] = {"BatchNormalization": _in_inference}
