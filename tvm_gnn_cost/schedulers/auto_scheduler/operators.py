"""Single operators with random shapes, as tensor expressions; they widen the training set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import te, topi

from tvm_gnn_cost.errors import InputError

Tensors = list[Any]


def _dense(rng: np.random.Generator) -> Tensors:
    batch, inputs, outputs = (int(rng.choice(sizes)) for sizes in ((1, 16, 64, 256), (128, 320, 768), (96, 512, 1024)))
    data, weight = te.placeholder((batch, inputs), name="data"), te.placeholder((outputs, inputs), name="weight")
    return [data, weight, topi.nn.relu(topi.nn.dense(data, weight))]


def _batch_matmul(rng: np.random.Generator) -> Tensors:
    batch, rows, columns, inner = (int(rng.choice(s)) for s in ((4, 8, 12), (64, 128), (32, 64, 128), (32, 64)))
    a = te.placeholder((batch, rows, inner), name="a")
    b = te.placeholder((batch, columns, inner), name="b")
    return [a, b, topi.nn.batch_matmul(a, b)]


def _conv2d(rng: np.random.Generator) -> Tensors:
    size, inputs, outputs, kernel, stride = (
        int(rng.choice(s)) for s in ((7, 14, 28, 56), (16, 48, 96), (24, 64, 128), (1, 3, 5), (1, 2))
    )
    data = te.placeholder((1, size, size, inputs), name="data")
    weight = te.placeholder((kernel, kernel, inputs, outputs), name="weight")
    bias = te.placeholder((1, 1, 1, outputs), name="bias")
    return [data, weight, bias, topi.nn.relu(topi.nn.conv2d_nhwc(data, weight, stride, kernel // 2, 1) + bias)]


def _dilated_conv2d(rng: np.random.Generator) -> Tensors:
    size, inputs, outputs = (int(rng.choice(s)) for s in ((14, 28, 56), (32, 64), (32, 96)))
    data = te.placeholder((1, size, size, inputs), name="data")
    weight = te.placeholder((3, 3, inputs, outputs), name="weight")
    return [data, weight, topi.nn.conv2d_nhwc(data, weight, 1, 2, 2)]


def _depthwise_conv2d(rng: np.random.Generator) -> Tensors:
    size, channels, stride = (int(rng.choice(s)) for s in ((7, 14, 28, 56), (64, 144, 240), (1, 2)))
    data = te.placeholder((1, size, size, channels), name="data")
    weight = te.placeholder((3, 3, channels, 1), name="weight")
    return [data, weight, topi.nn.relu(topi.nn.depthwise_conv2d_nhwc(data, weight, stride, 1, 1))]


def _conv1d(rng: np.random.Generator) -> Tensors:
    length, inputs, outputs, kernel = (int(rng.choice(s)) for s in ((64, 128, 256), (32, 64), (32, 128), (1, 3, 5)))
    data = te.placeholder((1, length, inputs), name="data")
    weight = te.placeholder((kernel, inputs, outputs), name="weight")
    return [data, weight, topi.nn.conv1d_nwc(data, weight, 1, kernel // 2, 1)]


def _rectangular_conv2d(rng: np.random.Generator) -> Tensors:
    """A kernel with a single row or column, as in networks that factorise a square kernel."""
    size, inputs, outputs, length = (int(rng.choice(s)) for s in ((8, 14, 20, 28), (48, 96, 176), (64, 112), (3, 5, 7)))
    kernel, padding = (1, length), (0, length // 2)
    if rng.random() < 0.5:
        kernel, padding = kernel[::-1], padding[::-1]
    data = te.placeholder((1, size, size, inputs), name="data")
    weight = te.placeholder((*kernel, inputs, outputs), name="weight")
    bias = te.placeholder((1, 1, 1, outputs), name="bias")
    return [data, weight, bias, topi.nn.relu(topi.nn.conv2d_nhwc(data, weight, 1, padding, 1) + bias)]


def _softmax(rng: np.random.Generator) -> Tensors:
    data = te.placeholder((int(rng.choice((16, 64, 256))), int(rng.choice((128, 512, 1000)))), name="data")
    return [data, topi.nn.softmax(data)]


def _layer_norm(rng: np.random.Generator) -> Tensors:
    rows, channels = int(rng.choice((64, 128, 196))), int(rng.choice((192, 384, 768)))
    data = te.placeholder((rows, channels), name="data")
    mean = topi.sum(data, axis=1, keepdims=True) / float(channels)
    difference = topi.subtract(data, mean)
    variance = topi.sum(topi.multiply(difference, difference), axis=1, keepdims=True) / float(channels)
    return [data, topi.multiply(difference, topi.rsqrt(topi.add(variance, te.const(1e-5, "float32"))))]


def _pooling(rng: np.random.Generator) -> Tensors:
    size, channels, kind = (
        int(rng.choice((14, 28, 56))),
        int(rng.choice((32, 96, 192))),
        str(rng.choice(("max", "avg"))),
    )
    data = te.placeholder((1, size, size, channels), name="data")
    return [data, topi.nn.pool2d(data, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), kind, layout="NHWC")]


KINDS: dict[str, Callable[[np.random.Generator], Tensors]] = {
    "dense": _dense,
    "batch-matmul": _batch_matmul,
    "conv2d": _conv2d,
    "dilated-conv2d": _dilated_conv2d,
    "depthwise-conv2d": _depthwise_conv2d,
    "conv1d": _conv1d,
    "softmax": _softmax,
    "layer-norm": _layer_norm,
    "pooling": _pooling,
    "rectangular-conv2d": _rectangular_conv2d,
}


def te_operator(kind: str, number: int) -> Tensors:
    """Inputs and output of an operator, whose shapes follow from its number.

    Raises:
        InputError: there is no such kind.
    """
    if kind not in KINDS:
        raise InputError(f"unknown operator '{kind}'; one of: {', '.join(KINDS)}")
    return KINDS[kind](np.random.default_rng([list(KINDS).index(kind), number]))
