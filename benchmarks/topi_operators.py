"""Operators of TVM's operator library with random sizes, whose tasks train the cost models.

Users of ``tune_tir`` and ``auto_scheduler`` write such functions, and other importers than Relax's lower networks to
them: depthwise convolutions are not grouped ones, and the second factor of a product may be transposed.
``topi_operators:dense_3`` names the fourth size of an operator where a command takes a function of the current folder.
For MetaSchedule (leave out ``--space`` for ``auto_scheduler``):

    cd benchmarks && tvm-gnn-cost collect $(python topi_operators.py --sizes 32) ../work/topi --space tvm
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, te, topi

from numbered import functions, print_names
from tvm_gnn_cost.schedulers import scheduler

#: The shapes of an operator's inputs, and what it computes.
Operator = tuple[Sequence[tuple[int, ...]], Callable[..., te.Tensor]]
#: Samples the sizes of an operator.
Sized = Callable[[random.Random], Operator]

#: Numbers of channels or features.
_WIDTHS = (16, 24, 32, 40, 48, 64, 72, 80, 96, 128, 144, 160, 192, 256, 320, 384, 512, 576, 768, 960)
#: Rows of square images.
_SIZES = (7, 8, 10, 12, 14, 16, 19, 20, 24, 28, 32, 36, 40, 48, 56, 64, 80, 96, 112)
#: Tokens, or rows of a matrix.
_ROWS = (1, 4, 7, 16, 32, 49, 50, 64, 77, 100, 128, 144, 196, 197, 256, 300, 384, 512)
#: Activations, or none.
_ENDINGS: tuple[Callable[[te.Tensor], te.Tensor], ...] = (
    lambda x: x,
    topi.nn.relu,
    lambda x: topi.clip(x, 0.0, 6.0),
    topi.sigmoid,
    lambda x: topi.multiply(x, topi.sigmoid(x)),
)
#: Bad schedules of larger tasks take too long.
_MOST_OPERATIONS = 3e8


def _image(rng: random.Random, work: Callable[[int, int], float]) -> tuple[int, int]:
    """Channels and rows of an image with a bounded number of operations."""
    while True:
        channels, size = rng.choice(_WIDTHS), rng.choice(_SIZES)
        if work(channels, size) <= _MOST_OPERATIONS:
            return channels, size


def _convolution(rng: random.Random) -> Operator:
    kernel = rng.choice([(1, 1), (1, 1), (3, 3), (3, 3), (5, 5), (1, 7), (7, 1)])
    stride, filters = rng.choice([1, 1, 2]), rng.choice(_WIDTHS)
    area = kernel[0] * kernel[1]
    channels, size = _image(rng, lambda c, s: 2.0 * c * filters * (s // stride) ** 2 * area)
    batch, padding, ending = rng.choice([1, 1, 1, 2, 4]), [kernel[0] // 2, kernel[1] // 2], rng.choice(_ENDINGS)
    channels = rng.choice([3, channels, channels, channels])
    with_sum = rng.random() < 0.25
    out = [(size - 1) // stride + 1] * 2
    shapes: list[tuple[int, ...]] = [(batch, channels, size, size), (filters, channels, *kernel), (1, filters, 1, 1)]

    def compute(data: te.Tensor, weight: te.Tensor, bias: te.Tensor, *other: te.Tensor) -> te.Tensor:
        added = topi.add(topi.nn.conv2d_nchw(data, weight, stride, [*padding, *padding], 1), bias)
        return ending(topi.add(added, other[0]) if other else added)

    return shapes + [(batch, filters, *out)] * with_sum, compute


def _convolution_nhwc(rng: random.Random) -> Operator:
    kernel, stride, filters = rng.choice([1, 3, 3, 5]), rng.choice([1, 1, 2]), rng.choice(_WIDTHS)
    channels, size = _image(rng, lambda c, s: 2.0 * c * filters * (s // stride) ** 2 * kernel**2)
    padding, ending = [kernel // 2] * 4, rng.choice(_ENDINGS)

    def compute(data: te.Tensor, weight: te.Tensor, bias: te.Tensor) -> te.Tensor:
        return ending(topi.add(topi.nn.conv2d_nhwc(data, weight, stride, padding, 1), bias))

    return ((1, size, size, channels), (kernel, kernel, channels, filters), (filters,)), compute


def _depthwise(rng: random.Random) -> Operator:
    kernel, stride = rng.choice([3, 3, 3, 5, 7]), rng.choice([1, 2])
    # Without a layer of MobileNetV2, which is held out. No other of the first 32 sizes is a layer of such a network.
    channels, size = _image(
        rng, lambda c, s: 20.0 * c * (s // stride) ** 2 * kernel**2 if (c, s) != (144, 56) else math.inf
    )
    batch, padding, ending = rng.choice([1, 1, 1, 2, 4]), [kernel // 2] * 2, rng.choice(_ENDINGS)

    def compute(data: te.Tensor, weight: te.Tensor, bias: te.Tensor) -> te.Tensor:
        summed = topi.nn.depthwise_conv2d_nchw(data, weight, [stride] * 2, padding, [1, 1])
        return ending(topi.add(summed, bias))

    return ((batch, channels, size, size), (channels, 1, kernel, kernel), (1, channels, 1, 1)), compute


def _depthwise_nhwc(rng: random.Random) -> Operator:
    kernel, stride = rng.choice([3, 3, 5]), rng.choice([1, 2])
    channels, size = _image(rng, lambda c, s: 20.0 * c * (s // stride) ** 2 * kernel**2)
    padding, ending = [kernel // 2] * 2, rng.choice(_ENDINGS)

    def compute(data: te.Tensor, weight: te.Tensor, bias: te.Tensor) -> te.Tensor:
        summed = topi.nn.depthwise_conv2d_nhwc(data, weight, [stride] * 2, padding, [1, 1])
        return ending(topi.add(summed, bias))

    return ((1, size, size, channels), (kernel, kernel, channels, 1), (channels,)), compute


def _product(rng: random.Random, transposed: bool) -> tuple[int, int, int]:
    """Rows, inner and outer size of a product."""
    while True:
        rows, inner, columns = rng.choice(_ROWS), rng.choice(_WIDTHS), rng.choice((*_WIDTHS, 1000, 1024, 1536, 2048))
        if 2.0 * rows * inner * columns <= _MOST_OPERATIONS / (2 if transposed else 1):
            return rows, inner, columns


def _dense(rng: random.Random) -> Operator:
    rows, inner, columns = _product(rng, transposed=True)
    ending, biased = rng.choice(_ENDINGS), rng.random() < 0.7

    def compute(data: te.Tensor, weight: te.Tensor, *bias: te.Tensor) -> te.Tensor:
        product = topi.matmul(data, weight, False, True)
        return ending(topi.add(product, bias[0]) if bias else product)

    return [(rows, inner), (columns, inner), *[(columns,)] * biased], compute


def _matmul(rng: random.Random) -> Operator:
    rows, inner, columns = _product(rng, transposed=False)
    ending = rng.choice(_ENDINGS)

    def compute(data: te.Tensor, weight: te.Tensor, bias: te.Tensor) -> te.Tensor:
        return ending(topi.add(topi.matmul(data, weight), bias))

    return ((rows, inner), (inner, columns), (columns,)), compute


def _batched(transposed: bool) -> Sized:
    def sized(rng: random.Random) -> Operator:
        while True:
            batch, rows = rng.choice([2, 3, 4, 6, 8, 10, 16, 24, 48, 64]), rng.choice(_ROWS)
            inner, columns = rng.choice([16, 24, 32, 40, 48, 64, 80, 96, 128]), rng.choice([rows, rows, *_ROWS])
            # The product of a transposed matrix has scores, and the other one has the values of the tokens.
            inner, columns = (inner, columns) if transposed else (columns, inner)
            if 2.0 * batch * rows * inner * columns <= _MOST_OPERATIONS / 2:
                break
        other = (batch, columns, inner) if transposed else (batch, inner, columns)
        return ((batch, rows, inner), other), lambda a, b: topi.nn.batch_matmul(a, b, transpose_b=transposed)

    return sized


def _softmax(rng: random.Random) -> Operator:
    rows = rng.choice(_ROWS)
    shape = rng.choice([(rng.choice([2, 4, 6, 8, 16, 24]), rows, rows), (rows, rng.choice([10, 100, 365, 1000, 2000]))])
    return (shape,), topi.nn.softmax


def _layer_norm(rng: random.Random) -> Operator:
    rows, width = rng.choice(_ROWS), rng.choice(_WIDTHS[4:])
    return ((rows, width), (width,), (width,)), lambda x, gamma, beta: topi.nn.layer_norm(x, gamma, beta, [1], 1e-5)


def _reduction(rng: random.Random) -> Operator:
    channels, size = _image(rng, lambda c, s: 50.0 * c * s * s)
    reduce, axes = rng.choice([topi.sum, topi.max]), rng.choice([[1], [2], [3], [2, 3], [1, 2, 3]])
    return ((rng.choice([1, 4]), channels, size, size),), lambda x: reduce(x, axes)


def _pooling(rng: random.Random) -> Operator:
    channels, size = _image(rng, lambda c, s: 50.0 * c * s * s)
    kernel, stride, kind = rng.choice([2, 3]), rng.choice([1, 2]), rng.choice(["max", "avg"])
    size = max(size, kernel)
    return ((1, channels, size, size),), lambda x: topi.nn.pool2d(
        x, [kernel] * 2, [stride] * 2, [1, 1], [kernel // 2] * 4, kind
    )


#: Operator -> what samples its sizes.
OPERATORS: dict[str, Sized] = {
    "conv2d_nchw": _convolution,
    "depthwise_nchw": _depthwise,
    "dense": _dense,
    "scores": _batched(transposed=True),
    "conv2d_nhwc": _convolution_nhwc,
    "matmul": _matmul,
    "softmax": _softmax,
    "depthwise_nhwc": _depthwise_nhwc,
    "batch_matmul": _batched(transposed=False),
    "layer_norm": _layer_norm,
    "reduction": _reduction,
    "pooling": _pooling,
}


def workload(operator: str, number: int) -> Any:
    """The operator with a number; deterministic.

    Returns:
        A Relax module, or for ``auto_scheduler`` the inputs and the output.
    """
    shapes, compute = OPERATORS[operator](random.Random(f"{operator}/{number}"))
    if scheduler().name == "auto-scheduler":
        tensors = [te.placeholder(shape, name=f"input{i}") for i, shape in enumerate(shapes)]
        return [*tensors, compute(*tensors)]
    builder = relax.BlockBuilder()
    inputs = [relax.Var(f"input{i}", relax.TensorType(shape, "float32")) for i, shape in enumerate(shapes)]
    with builder.function("main", inputs):
        with builder.dataflow():
            result = builder.emit_output(builder.emit_te(compute, *inputs, primfunc_name_hint=operator))
        builder.emit_func_output(result)
    return builder.get()


__getattr__ = functions(__name__, OPERATORS, workload)


if __name__ == "__main__":
    print_names("topi_operators", OPERATORS, sizes=32)
