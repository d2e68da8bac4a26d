"""Batch, layer, group, instance and local response normalization.

Variances are means of squared differences from the mean: the mean of squares less the squared mean is wrong where the
mean is large.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from tvm_gnn_cost.importing.batch_norm import affine
from tvm_gnn_cost.importing.relax.rules import Primitive, Unsupported, positive, rule, sizes

#: Larger windows of channels are summed in a loop instead of being unrolled.
_WRITTEN_OUT = 16


@rule("BatchNormalization")
def batch_normalization(node: Primitive) -> Any:
    """Batch norm, by given statistics, or by those of the batch in training mode."""
    x, shape = node.emit(node.tensor(0)), node.shape(0)
    is_training = bool(node.attribute("training_mode"))
    if is_training:
        return _in_training(node, x)
    epsilon = float(node.attribute("epsilon"))
    # With spatial = 0, each pixel has separate parameters.
    spread = [1] * (len(shape) - 2) if len(node.shape(1)) == 1 else []
    if all(node.is_constant(i) for i in range(1, 5)):
        factor, summand = affine([np.asarray(node.value(i)) for i in range(1, 5)], epsilon)
        factor, summand = (item.reshape(*item.shape, *spread) for item in (factor, summand))
        dtype = node.dtype(0)
        return relax.op.add(relax.op.multiply(x, node.const(factor, dtype)), node.const(summand, dtype))
    scale, offset, mean, variance = (
        relax.op.reshape(_as(node.tensor(i), node.dtype(0)), [*node.shape(i), *spread]) for i in range(1, 5)
    )
    return _normalized(node, x, mean, variance, epsilon, scale, offset)


def _in_training(node: Primitive, x: relax.Expr) -> list[relax.Expr]:
    """The output and the updated running mean and variance."""
    rank, channels = len(node.shape(0)), node.shape(1)[0]
    axes = [axis for axis in range(rank) if axis != 1]
    parameters = [_as(node.tensor(i), node.dtype(0)) for i in range(1, 5)]
    scale, offset = (relax.op.reshape(parameter, [channels, *[1] * (rank - 2)]) for parameter in parameters[:2])
    statistics = [node.emit(item) for item in (relax.op.mean(x, axes, True), relax.op.variance(x, axes, True))]
    mean, variance = statistics
    results = [_normalized(node, x, mean, variance, float(node.attribute("epsilon")), scale, offset)]
    kept = float(node.attribute("momentum"))
    for position, running, statistic in zip((1, 2), parameters[2:], statistics, strict=True):
        share = relax.op.multiply(relax.op.reshape(statistic, [channels]), node.const(1 - kept, node.dtype(0)))
        updated = relax.op.add(relax.op.multiply(running, node.const(kept, node.dtype(0))), share)
        results.append(_as_output(node, position, updated))
    return results


@rule("InstanceNormalization")
def instance_normalization(node: Primitive) -> relax.Expr:
    """Instance norm."""
    x, rank = node.emit(node.tensor(0)), len(node.shape(0))
    axes = list(range(2, rank))
    scale, offset = (_spread(node, i, [*node.shape(i), *[1] * (rank - 2)]) for i in (1, 2))
    mean, variance = relax.op.mean(x, axes, True), relax.op.variance(x, axes, True)
    return _normalized(node, x, mean, variance, float(node.attribute("epsilon")), scale, offset)


@rule("GroupNormalization")
def group_normalization(node: Primitive) -> relax.Expr:
    """Group norm."""
    shape, groups = node.shape(0), int(node.attribute("num_groups"))
    rest = [1] * (len(shape) - 2)
    x = node.emit(relax.op.reshape(node.tensor(0), [shape[0], groups, int(np.prod(shape[1:])) // groups]))
    mean, variance = relax.op.mean(x, [2], True), relax.op.variance(x, [2], True)
    epsilon = float(node.attribute("epsilon"))
    if node.version < 21:
        # One factor per group.
        scale, offset = (_spread(node, i, [groups, 1]) for i in (1, 2))
        return relax.op.reshape(_normalized(node, x, mean, variance, epsilon, scale, offset), shape)
    scale, offset = (_spread(node, i, [shape[1], *rest]) for i in (1, 2))
    result = relax.op.reshape(_normalized(node, x, mean, variance, epsilon), shape)
    return relax.op.add(relax.op.multiply(result, scale), offset)


@rule("LayerNormalization")
def layer_normalization(node: Primitive) -> list[relax.Expr]:
    """Layer norm; also returns the mean and the inverse standard deviation."""
    x, rank = node.emit(node.tensor(0)), len(node.shape(0))
    axes = list(range(positive(node.attribute("axis"), rank), rank))
    parameters = [node.shape(i) == node.shape(0)[axes[0] :] for i in (1, 2) if node.has(i)]
    # Relax's operator does not take float64.
    if all(parameters) and node.dtype(0) == "float32" and not node.wants(1) and not node.wants(2):
        scale = _as(node.tensor(1), node.dtype(0))
        offset = _as(node.tensor(2), node.dtype(0)) if node.has(2) else relax.op.zeros_like(scale)
        output = relax.op.nn.layer_norm(x, scale, offset, axes, float(node.attribute("epsilon")), center=node.has(2))
        return [output, output, output]
    mean, variance = (node.emit(item) for item in (relax.op.mean(x, axes, True), relax.op.variance(x, axes, True)))
    inverse = node.emit(_inverse_deviation(node, variance, float(node.attribute("epsilon"))))
    output = relax.op.multiply(relax.op.multiply(relax.op.subtract(x, mean), inverse), node.tensor(1))
    if node.has(2):
        output = relax.op.add(output, node.tensor(2))
    further = [_as_output(node, i, item) if node.wants(i) else item for i, item in ((1, mean), (2, inverse))]
    return [output, *further]


@rule("RMSNormalization")
def root_mean_square_normalization(node: Primitive) -> relax.Expr:
    """RMS norm."""
    x, rank = node.emit(node.tensor(0)), len(node.shape(0))
    axes = list(range(positive(node.attribute("axis"), rank), rank))
    squares = relax.op.mean(relax.op.multiply(x, x), axes, True)
    inverse = _inverse_deviation(node, squares, float(node.attribute("epsilon")))
    return relax.op.multiply(relax.op.multiply(x, inverse), _as(node.tensor(1), node.dtype(0)))


@rule("MeanVarianceNormalization")
def mean_variance_normalization(node: Primitive) -> relax.Expr:
    """(x - mean) / (standard deviation + 1e-9)."""
    if node.version < 9:
        raise Unsupported("it is from an operator set before 9")
    x, rank = node.emit(node.tensor(0)), len(node.shape(0))
    axes = sorted({positive(size, rank) for size in sizes(node.attribute("axes"))})
    deviation = relax.op.sqrt(relax.op.variance(x, axes, True))
    divisor = relax.op.add(deviation, node.const(1e-9, node.dtype(0)))
    return relax.op.divide(relax.op.subtract(x, relax.op.mean(x, axes, True)), divisor)


@rule("LpNormalization")
def norm(node: Primitive) -> relax.Expr:
    """Divides by the L1 or L2 norm along an axis; zeros stay zero."""
    x, axis = node.emit(node.tensor(0)), positive(node.attribute("axis"), len(node.shape(0)))
    if node.attribute("p") == 1:
        length = relax.op.sum(relax.op.abs(x), [axis], True)
    else:
        length = relax.op.sqrt(relax.op.sum(relax.op.multiply(x, x), [axis], True))
    length = node.emit(length)
    zero, one = node.const(0, node.dtype(0)), node.const(1, node.dtype(0))
    return relax.op.divide(x, relax.op.where(relax.op.equal(length, zero), one, length))


@rule("LRN")
def local_response_normalization(node: Primitive) -> relax.Expr:
    """Divides by (bias + alpha / size * the sum of squares of ``size`` neighbouring channels) ** beta."""
    x, shape, dtype = node.emit(node.tensor(0)), node.shape(0), node.dtype(0)
    size, beta = int(node.attribute("size")), float(node.attribute("beta"))
    before = (size - 1) // 2
    squares = relax.op.multiply(x, x)
    if size <= _WRITTEN_OUT:
        widths = [0, 0, before, size - 1 - before, *[0] * (2 * len(shape) - 4)]
        padded = node.emit(relax.op.nn.pad(squares, widths))
        parts = [relax.op.strided_slice(padded, [1], [i], [i + shape[1]]) for i in range(size)]
        total: relax.Expr = reduce(relax.op.add, parts)
    else:
        total = node.te(_window_sum, squares, size, before, name="neighbours")
    share = relax.op.multiply(total, node.const(float(node.attribute("alpha")) / size, dtype))
    base = node.emit(relax.op.add(share, node.const(float(node.attribute("bias")), dtype)))
    if beta == 0.75:
        # Square roots are faster than powers.
        root = node.emit(relax.op.sqrt(base))
        return relax.op.divide(x, relax.op.multiply(root, relax.op.sqrt(root)))
    return relax.op.divide(x, relax.op.power(base, node.const(beta, dtype)))


def _window_sum(x: te.Tensor, size: int, before: int) -> te.Tensor:
    """Sliding-window sum along the second axis."""
    shape = [int(size) for size in x.shape]
    place = te.reduce_axis((0, size), name="neighbour")

    def total(batch: Any, channel: Any, *rest: Any) -> Any:
        other = channel + place - before
        inside = tirx.all(other >= 0, other < shape[1])
        return te.sum(
            tirx.if_then_else(inside, x[(batch, other, *rest)], tirx.const(0, x.dtype)),
            axis=place,
        )

    return te.compute(shape, total, name="neighbours")


def _normalized(
    node: Primitive,
    x: relax.Expr,
    mean: relax.Expr,
    variance: relax.Expr,
    epsilon: float,
    scale: relax.Expr | None = None,
    offset: relax.Expr | None = None,
) -> relax.Expr:
    """(x - mean) / sqrt(variance + epsilon) * scale + offset."""
    normalized = relax.op.multiply(relax.op.subtract(x, mean), _inverse_deviation(node, variance, epsilon))
    if scale is not None:
        normalized = relax.op.multiply(normalized, scale)
    return normalized if offset is None else relax.op.add(normalized, offset)


def _inverse_deviation(node: Primitive, variance: relax.Expr, epsilon: float) -> relax.Expr:
    dtype = node.dtype(0)
    total = relax.op.add(variance, node.const(epsilon, dtype))
    return relax.op.divide(node.const(1, dtype), relax.op.sqrt(total))


def _spread(node: Primitive, position: int, shape: list[int]) -> relax.Expr:
    """A per-channel or per-group parameter, reshaped for broadcasting."""
    if node.is_constant(position):
        return node.const(np.asarray(node.value(position)).reshape(shape), node.dtype(0))
    return relax.op.reshape(_as(node.tensor(position), node.dtype(0)), shape)


def _as(value: relax.Expr, dtype: str) -> relax.Expr:
    """A parameter, cast to the type of its operand."""
    return relax.op.astype(value, dtype)


def _as_output(node: Primitive, position: int, value: relax.Expr) -> relax.Expr:
    """A statistic, cast to the type of the output."""
    wanted = str(node.output(position).dtype)
    return value if wanted in ("float16", "bfloat16") else relax.op.astype(value, wanted)
