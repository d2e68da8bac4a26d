"""Single tasks of networks for TVM's own search, with their results in NumPy."""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from scipy.special import softmax as scipy_softmax
from tvm import te, topi

Floats = npt.NDArray[np.float32]
Exact = npt.NDArray[np.float64]

#: Rounds in which programs are measured again, and the least milliseconds of a program in each.
_ROUNDS, _ROUND_MS = 15, 10


@dataclass(frozen=True)
class SingleTask:
    """A task.

    Attributes:
        shapes: Shape of each input; all are float32.
        compute: Returns the output of the inputs.
        reference: The same in NumPy, in float64.
        flops: Floating-point operations.
    """

    shapes: Sequence[tuple[int, ...]]
    compute: Callable[..., te.Tensor]
    reference: Callable[..., Exact]
    flops: float

    def tensors(self) -> list[te.Tensor]:
        """The inputs and the output."""
        inputs = [te.placeholder(shape, name=f"input{i}") for i, shape in enumerate(self.shapes)]
        return [*inputs, self.compute(*inputs)]

    def module(self) -> tvm.IRModule:
        """The task before any schedule."""
        function = te.create_prim_func(self.tensors())
        # Programs take the weights as they are, also where TVM would have them in another layout.
        return tvm.IRModule({"main": function.without_attr("layout_free_buffers")})

    def inputs(self, seed: int = 0) -> list[Floats]:
        """Random inputs."""
        rng = np.random.default_rng(seed)
        return [rng.standard_normal(shape).astype(np.float32) for shape in self.shapes]


def convolution(
    batch: int,
    channels: int,
    size: int,
    filters: int,
    kernel: tuple[int, int],
    *,
    stride: int = 1,
    limit: float | None = None,
    with_sum: bool = False,
) -> SingleTask:
    """A convolution with a bias and an activation, padded by half the kernel.

    Args:
        batch: Number of images.
        channels: Input channels.
        size: Height and width of the input.
        filters: Output channels.
        kernel: Its height and width.
        stride: Along both axes.
        limit: Upper bound of the output: 6 for ReLU6, none for ReLU.
        with_sum: Whether another tensor is added before the activation, as in a residual block.
    """
    padding = [kernel[0] // 2, kernel[1] // 2]
    out = (size - 1) // stride + 1

    def compute(data: te.Tensor, weight: te.Tensor, bias: te.Tensor, *other: te.Tensor) -> te.Tensor:
        added = topi.add(topi.nn.conv2d_nchw(data, weight, stride, [*padding, *padding], 1), bias)
        return _activated(topi.add(added, other[0]) if other else added, limit)

    def reference(data: Floats, weight: Floats, bias: Floats, *other: Floats) -> Exact:
        windows = _windows(data, kernel, stride)
        summed = np.einsum("nchwij,fcij->nfhw", windows, weight.astype(np.float64), optimize=True) + bias
        result: Exact = np.clip(summed + (other[0] if other else 0.0), 0, limit)
        return result

    output = (batch, filters, out, out)
    shapes = [(batch, channels, size, size), (filters, channels, *kernel), (1, filters, 1, 1)]
    shapes += [output] if with_sum else []
    return SingleTask(shapes, compute, reference, 2.0 * prod(output) * channels * prod(kernel))


def depthwise(channels: int, size: int, kernel: int, stride: int, limit: float | None) -> SingleTask:
    """A depthwise convolution of one image with a bias and an activation; see :func:`convolution`."""

    def compute(data: te.Tensor, weight: te.Tensor, bias: te.Tensor) -> te.Tensor:
        summed = topi.nn.depthwise_conv2d_nchw(data, weight, [stride] * 2, [kernel // 2] * 2, [1, 1])
        return _activated(topi.add(summed, bias), limit)

    def reference(data: Floats, weight: Floats, bias: Floats) -> Exact:
        windows = _windows(data, (kernel, kernel), stride)
        result: Exact = np.clip(
            np.einsum("nchwij,cij->nchw", windows, weight[:, 0].astype(np.float64)) + bias, 0, limit
        )
        return result

    out = (size - 1) // stride + 1
    shapes = ((1, channels, size, size), (channels, 1, kernel, kernel), (1, channels, 1, 1))
    return SingleTask(shapes, compute, reference, 2.0 * channels * (out * kernel) ** 2)


def product(rows: int, inner: int, columns: int) -> SingleTask:
    """A matrix product with a bias."""

    def compute(data: te.Tensor, weight: te.Tensor, bias: te.Tensor) -> te.Tensor:
        return topi.add(topi.nn.matmul(data, weight), bias)

    def reference(data: Floats, weight: Floats, bias: Floats) -> Exact:
        return data.astype(np.float64) @ weight + bias

    shapes = ((rows, inner), (inner, columns), (1, columns))
    return SingleTask(shapes, compute, reference, 2.0 * rows * inner * columns)


def attention(heads: int, tokens: int, width: int) -> SingleTask:
    """The products of queries and keys of each head."""

    def compute(query: te.Tensor, key: te.Tensor) -> te.Tensor:
        return topi.nn.batch_matmul(query, key)

    def reference(query: Floats, key: Floats) -> Exact:
        return query.astype(np.float64) @ key.transpose(0, 2, 1)

    shapes = ((heads, tokens, width), (heads, tokens, width))
    return SingleTask(shapes, compute, reference, 2.0 * heads * tokens**2 * width)


def softmax(heads: int, tokens: int) -> SingleTask:
    """Softmax over the last axis."""

    def reference(scores: Floats) -> Exact:
        found: Exact = scipy_softmax(scores.astype(np.float64), -1)
        return found

    return SingleTask(((heads, tokens, tokens),), topi.nn.softmax, reference, 4.0 * heads * tokens**2)


def layer_norm(tokens: int, width: int) -> SingleTask:
    """Layer normalization over the last axis."""

    def compute(data: te.Tensor, gamma: te.Tensor, beta: te.Tensor) -> te.Tensor:
        return topi.nn.layer_norm(data, gamma, beta, [1], 1e-5)

    def reference(data: Floats, gamma: Floats, beta: Floats) -> Exact:
        exact = data.astype(np.float64)
        result: Exact = (exact - exact.mean(1, keepdims=True)) / np.sqrt(
            exact.var(1, keepdims=True) + 1e-5
        ) * gamma + beta
        return result

    return SingleTask(((tokens, width), (width,), (width,)), compute, reference, 8.0 * tokens * width)


def measure_again(task: SingleTask, libraries: Sequence[Path], device: Any) -> list[dict[str, Any]]:
    """Compares programs of a task with NumPy, and times them interleaved.

    Args:
        task: The task.
        libraries: The programs.
        device: TVM's device that runs them.

    Returns:
        For each program the largest difference, relative to the largest value, and the median and quartiles of its
        latency over the rounds, in seconds.
    """
    # The second name is that of the TVM that has auto_scheduler.
    tensor = tvm.runtime.tensor if hasattr(tvm.runtime, "tensor") else tvm.nd.array
    inputs = task.inputs()
    expected = task.reference(*inputs)
    values = [tensor(value, device) for value in inputs]
    programs: list[tuple[Any, Any, list[float]]] = []
    results: list[dict[str, Any]] = []
    for library in libraries:
        module = tvm.runtime.load_module(str(library))
        output = tensor(np.full(expected.shape, np.nan, np.float32), device)
        module["main"](*values, output)
        device.sync()
        difference = np.abs(output.numpy() - expected).max() / np.abs(expected).max()
        results.append({"difference": float(difference)})
        evaluator = module.time_evaluator("main", device, number=10, repeat=1, min_repeat_ms=_ROUND_MS)
        programs.append((evaluator, output, []))
    order = random.Random(0)
    for _ in range(_ROUNDS):
        for evaluator, output, seconds in order.sample(programs, len(programs)):
            seconds.append(float(evaluator(*values, output).mean))
    for result, (_, _, seconds) in zip(results, programs, strict=True):
        low, middle, high = np.percentile(seconds, [25, 50, 75]).tolist()
        result |= {"latency_s": middle, "quartiles_s": [low, high]}
    return results


def _activated(value: te.Tensor, limit: float | None) -> te.Tensor:
    return topi.nn.relu(value) if limit is None else topi.clip(value, 0.0, limit)


def _windows(data: Floats, kernel: tuple[int, int], stride: int) -> Exact:
    """The window of each output: float64[batch, channels, height, width, *kernel]."""
    edges = [(extent // 2, extent // 2) for extent in kernel]
    padded = np.pad(data.astype(np.float64), ((0, 0), (0, 0), *edges))
    return np.lib.stride_tricks.sliding_window_view(padded, kernel, axis=(2, 3))[:, :, ::stride, ::stride]


#: Tasks of networks that the published records of an A100 do not contain. Sizes are such that a good program takes tens
#: of microseconds, not the time of a launch.
GPU_TASKS = {
    "vgg-11: convolution 3x3": convolution(1, 64, 112, 128, (3, 3)),
    "bert-base: matrix product": product(128, 768, 3072),
    "mobilenet-v2: convolution 1x1": convolution(8, 16, 112, 96, (1, 1), limit=6.0),
}

#: Tasks of networks and families that the shipped checkpoints did not learn from (``common.HELD_OUT``), batch 1: a
#: Swin of 96 channels and windows of 7 x 7, in its second and third stage, and the smallest Whisper.
CPU_TASKS = {
    "resnet-18: convolution 3x3 with sum": convolution(1, 64, 56, 64, (3, 3), with_sum=True),
    "resnet-18: convolution 3x3, stride 2": convolution(1, 64, 56, 128, (3, 3), stride=2),
    "inception-v3: convolution 1x7": convolution(1, 160, 17, 192, (1, 7)),
    "mobilenet-v2: convolution 1x1": convolution(1, 96, 56, 24, (1, 1), limit=6.0),
    "mobilenet-v2: depthwise 3x3": depthwise(144, 56, 3, 1, 6.0),
    "mobilenet-v2: depthwise 3x3, stride 2": depthwise(96, 112, 3, 2, 6.0),
    "swin: matrix product": product(784, 192, 768),
    "swin: attention scores": attention(96, 49, 32),
    "swin: softmax": softmax(48, 49),
    "whisper: layer normalization": layer_norm(1500, 384),
}

#: Of quick runs.
SMALL = {"matrix product": product(16, 32, 64)}


def chosen(tasks: Mapping[str, SingleTask], arguments: argparse.Namespace) -> dict[str, SingleTask]:
    """The tasks that the options of a script name, in the order of the table; small ones in a quick run."""
    return dict(SMALL) if arguments.quick else {name: task for name, task in tasks.items() if name in arguments.tasks}
