"""Matrix products, convolutions and determinants."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from tvm_gnn_cost.importing.relax.rules import Primitive, Unsupported, rule, sizes

_CONVOLUTIONS: dict[int, tuple[Any, str, str]] = {
    1: (relax.op.nn.conv1d, "NCW", "OIW"),
    2: (relax.op.nn.conv2d, "NCHW", "OIHW"),
    3: (relax.op.nn.conv3d, "NCDHW", "OIDHW"),
}

_TRANSPOSED: dict[int, tuple[Any, str, str]] = {
    1: (relax.op.nn.conv1d_transpose, "NCW", "IOW"),
    2: (relax.op.nn.conv2d_transpose, "NCHW", "IOHW"),
    3: (relax.op.nn.conv3d_transpose, "NCDHW", "IODHW"),
}


@rule("MatMul")
def matmul(node: Primitive) -> relax.Expr:
    """Batched matrix products with broadcasting, also of vectors."""
    return relax.op.matmul(node.tensor(0), node.tensor(1))


@rule("Gemm")
def gemm(node: Primitive) -> relax.Expr:
    """Alpha * A' * B' + beta * C."""
    dtype = node.dtype(0)
    left = _turned(node, 0, bool(node.attribute("transA")))
    right = _turned(node, 1, bool(node.attribute("transB")))
    result = relax.op.matmul(left, right)
    if node.attribute("alpha") != 1:
        result = relax.op.multiply(result, node.const(node.attribute("alpha"), dtype))
    if not node.has(2) or node.attribute("beta") == 0:
        return result
    added = node.tensor(2)
    if node.attribute("beta") != 1:
        added = relax.op.multiply(added, node.const(node.attribute("beta"), dtype))
    return relax.op.add(result, added)


def _turned(node: Primitive, position: int, is_transposed: bool) -> relax.Expr:
    if not is_transposed:
        return node.tensor(position)
    if node.is_constant(position):
        return node.const(np.asarray(node.value(position)).T)
    return relax.op.permute_dims(node.tensor(position))


@rule("Conv", "ConvInteger")
def convolution(node: Primitive) -> relax.Expr:
    """Convolution over one to three spatial axes, with groups and a bias."""
    shape, kernel = node.shape(0), node.shape(1)
    (convolve, data, weights), strides, dilations = _settings(node, _CONVOLUTIONS)
    pads = padding(node, shape[2:], kernel[2:], strides, dilations)
    x, w = node.tensor(0), node.tensor(1)
    if node.operator == "ConvInteger":
        x, w = (_without_zero_point(node, i, item) for i, item in enumerate((x, w)))
    output = convolve(
        x, w, strides, pads, dilations, int(node.attribute("group")), data_layout=data, kernel_layout=weights
    )
    return _with_bias(node, output, len(strides))


def _settings(
    node: Primitive, operators: dict[int, tuple[Any, str, str]]
) -> tuple[tuple[Any, str, str], list[int], list[int]]:
    """Relax's operator, with layouts for the number of spatial axes, strides and dilations."""
    axes = len(node.shape(0)) - 2
    if axes not in operators:
        raise Unsupported(f"it has {axes} spatial axes, and TVM supports 1 to 3")
    strides, dilations = (sizes(node.attribute(name) or [1] * axes) for name in ("strides", "dilations"))
    return operators[axes], strides, dilations


def _without_zero_point(node: Primitive, position: int, value: relax.Expr) -> relax.Expr:
    """An integer operand as int32, minus its zero point."""
    value = relax.op.astype(value, "int32")
    if not node.has(position + 2):
        return value
    zero = node.tensor(position + 2)
    count = node.shape(position + 2)
    zero = relax.op.astype(zero, "int32")
    if position and count and count[0] > 1:
        zero = relax.op.reshape(zero, [count[0], *[1] * (len(node.shape(position)) - 1)])
    return relax.op.subtract(value, relax.op.reshape(zero, []) if not count or count[0] == 1 else zero)


def _with_bias(node: Primitive, x: relax.Expr, axes: int) -> relax.Expr:
    if node.operator == "ConvInteger" or not node.has(2):
        return x
    if node.is_constant(2):
        bias = node.const(np.asarray(node.value(2)).reshape(1, -1, *[1] * axes))
    else:
        bias = relax.op.reshape(node.tensor(2), [1, -1, *[1] * axes])
    return relax.op.add(x, bias)


def padding(
    node: Primitive, image: tuple[int, ...], kernel: tuple[int, ...], strides: list[int], dilations: list[int]
) -> list[int]:
    """Padding before all axes, then after all axes, with ``auto_pad`` resolved."""
    mode = node.attribute("auto_pad") or "NOTSET"
    if mode == "NOTSET":
        return sizes(node.attribute("pads") or [0] * (2 * len(kernel)))
    if mode == "VALID":
        return [0] * (2 * len(kernel))
    before, behind = [], []
    for size, width, stride, dilation in zip(image, kernel, strides, dilations, strict=True):
        needed = max(0, (-(-size // stride) - 1) * stride + (width - 1) * dilation + 1 - size)
        less, more = needed // 2, needed - needed // 2
        before.append(more if mode == "SAME_LOWER" else less)
        behind.append(less if mode == "SAME_LOWER" else more)
    return [*before, *behind]


@rule("ConvTranspose")
def transposed_convolution(node: Primitive) -> relax.Expr:
    """Transposed convolution: computed without padding, then cropped."""
    shape, kernel, out = node.shape(0), node.shape(1), node.out_shape()
    (convolve, data, layout), strides, dilations = _settings(node, _TRANSPOSED)
    axes = len(strides)
    weights = node.tensor(1)
    if set(dilations) != {1}:
        weights = node.const(_dilated(node.constant(1, "weights, as they are dilated,"), dilations))
    spans = [(width - 1) * dilation + 1 for width, dilation in zip(kernel[2:], dilations, strict=True)]
    whole = [(size - 1) * stride + span for size, stride, span in zip(shape[2:], strides, spans, strict=True)]
    before = _cut_before(node, whole, out[2:], axes)
    behind = [full - cut - size for full, cut, size in zip(whole, before, out[2:], strict=True)]
    convolved = convolve(
        node.tensor(0),
        weights,
        strides=strides,
        padding=[*(max(0, item) for item in before), *(max(0, item) for item in behind)],
        groups=int(node.attribute("group")),
        data_layout=data,
        kernel_layout=layout,
    )
    grown = [max(0, -item) for item in (*before, *behind)]
    if any(grown):
        convolved = relax.op.nn.pad(
            convolved, [0, 0, 0, 0, *(item for axis in range(axes) for item in (grown[axis], grown[axes + axis]))]
        )
    return _with_bias(node, convolved, axes)


def _cut_before(node: Primitive, whole: list[int], wanted: tuple[int, ...], axes: int) -> list[int]:
    """Number of elements to crop before each axis; the rest is cropped after it."""
    mode = node.attribute("auto_pad") or "NOTSET"
    if mode == "NOTSET" and not node.attribute("output_shape"):
        return sizes(node.attribute("pads") or [0] * (2 * axes))[:axes]
    if mode == "VALID":
        return [0] * axes
    extra = node.attribute("output_padding") or [0] * axes
    outputs = []
    for full, size, more in zip(whole, wanted, extra, strict=True):
        total = max(0, full + more - size)
        outputs.append(total // 2 if mode == "SAME_UPPER" else total - total // 2)
    return outputs


def _dilated(weights: np.ndarray[Any, Any], dilations: list[int]) -> np.ndarray[Any, Any]:
    spans = [(size - 1) * step + 1 for size, step in zip(weights.shape[2:], dilations, strict=True)]
    dilated = np.zeros((*weights.shape[:2], *spans), weights.dtype)
    dilated[(slice(None), slice(None), *(slice(None, None, step) for step in dilations))] = weights
    return dilated


@rule("MatMulInteger")
def integer_matmul(node: Primitive) -> relax.Expr:
    """Integer matrix product in int32, with zero points."""
    operands = []
    for position in (0, 1):
        value = relax.op.astype(node.tensor(position), "int32")
        if node.has(position + 2):
            zero = relax.op.astype(node.tensor(position + 2), "int32")
            count = node.shape(position + 2)
            if position == 0 and len(count) == 1 and count[0] > 1:
                zero = relax.op.reshape(zero, [count[0], 1])
            elif count in ((1,), ()):
                zero = relax.op.reshape(zero, [])
            value = relax.op.subtract(value, zero)
        operands.append(value)
    return relax.op.matmul(*operands)


#: Determinants of larger matrices are not supported.
_ROWS = 5


@rule("Det")
def determinant(node: Primitive) -> relax.Expr:
    """Determinants of small matrices, by Laplace expansion along rows."""
    *batch, size, _ = node.shape(0)
    if size > _ROWS:
        raise Unsupported(f"its matrices have more than {_ROWS} rows")
    x = relax.op.reshape(node.tensor(0), [prod(batch), size, size])

    def developed(x: te.Tensor) -> te.Tensor:
        def minor(b: Any, row: int, columns: Sequence[int]) -> Any:
            if row == size:
                return tirx.const(1, str(x.dtype))
            result: Any = None
            for number, column in enumerate(columns):
                rest = [item for item in columns if item != column]
                term = x[b, row, column] * minor(b, row + 1, rest)
                result = term if result is None else (result - term if number % 2 else result + term)
            return result

        return te.compute((prod(batch),), lambda b: minor(b, 0, range(size)), name="det")

    return relax.op.reshape(node.te(developed, x, name="det"), node.out_shape())
