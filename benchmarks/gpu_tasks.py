"""Tasks of networks that the published records of an A100 do not contain, with their results in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import tvm
from tvm import te, topi

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class GPUTask:
    """A task.

    Attributes:
        shapes: Shape of each input; all are float32.
        compute: Returns the output of the inputs.
        reference: The same in NumPy, in float64.
        flops: Floating-point operations.
    """

    shapes: Sequence[tuple[int, ...]]
    compute: Callable[..., te.Tensor]
    reference: Callable[..., npt.NDArray[np.float64]]
    flops: float

    def module(self) -> tvm.IRModule:
        """The task before any schedule."""
        inputs = [te.placeholder(shape, name=f"input{i}") for i, shape in enumerate(self.shapes)]
        function = te.create_prim_func([*inputs, self.compute(*inputs)])
        # Programs take the weights as they are, also where TVM would have them in another layout.
        return tvm.IRModule({"main": function.without_attr("layout_free_buffers")})

    def inputs(self, seed: int = 0) -> list[Floats]:
        """Random inputs."""
        rng = np.random.default_rng(seed)
        return [rng.standard_normal(shape).astype(np.float32) for shape in self.shapes]


def convolution(batch: int, channels: int, size: int, filters: int, kernel: int, clip: bool = False) -> GPUTask:
    """A convolution with a bias and a ReLU, or with ReLU6; the output is as large as the input."""

    def compute(data: te.Tensor, weight: te.Tensor, bias: te.Tensor) -> te.Tensor:
        added = topi.add(topi.nn.conv2d_nchw(data, weight, 1, kernel // 2, 1), bias)
        return topi.clip(added, 0.0, 6.0) if clip else topi.nn.relu(added)

    def reference(data: Floats, weight: Floats, bias: Floats) -> npt.NDArray[np.float64]:
        summed = np.einsum("nchwij,fcij->nfhw", _windows(data, kernel), weight.astype(np.float64), optimize=True)
        result: npt.NDArray[np.float64] = np.clip(summed + bias, 0, 6 if clip else None)
        return result

    shapes = ((batch, channels, size, size), (filters, channels, kernel, kernel), (1, filters, 1, 1))
    return GPUTask(shapes, compute, reference, 2.0 * batch * filters * size**2 * channels * kernel**2)


def product(rows: int, inner: int, columns: int) -> GPUTask:
    """A matrix product with a bias."""

    def compute(data: te.Tensor, weight: te.Tensor, bias: te.Tensor) -> te.Tensor:
        return topi.add(topi.nn.matmul(data, weight), bias)

    def reference(data: Floats, weight: Floats, bias: Floats) -> npt.NDArray[np.float64]:
        return data.astype(np.float64) @ weight + bias

    shapes = ((rows, inner), (inner, columns), (1, columns))
    return GPUTask(shapes, compute, reference, 2.0 * rows * inner * columns)


def _windows(data: Floats, kernel: int) -> npt.NDArray[np.float64]:
    """The window of each output: float64[batch, channels, height, width, kernel, kernel]."""
    edge = kernel // 2
    padded = np.pad(data.astype(np.float64), ((0, 0), (0, 0), (edge, edge), (edge, edge)))
    return np.lib.stride_tricks.sliding_window_view(padded, (kernel, kernel), axis=(2, 3))


#: Sizes are such that a good program takes tens of microseconds, not the time of a launch.
TASKS = {
    "vgg-11: convolution 3x3": convolution(1, 64, 112, 128, 3),
    "bert-base: matrix product": product(128, 768, 3072),
    "mobilenet-v2: convolution 1x1": convolution(8, 16, 112, 96, 1, clip=True),
}

#: Of quick runs.
SMALL = {"matrix product": product(16, 32, 64)}
