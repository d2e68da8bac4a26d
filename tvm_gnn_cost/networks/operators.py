"""Single operators with random shapes, which augment the training set."""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from torch import Tensor, nn

from tvm_gnn_cost.networks.sequence import Attention

#: A module and its input shape.
Workload = tuple[nn.Module, tuple[int, ...]]


class BatchMatmul(nn.Module):
    """Batched matrix product with a constant."""

    def __init__(self, batch: int, inner: int, columns: int) -> None:
        super().__init__()
        self.other = nn.Parameter(torch.randn(batch, inner, columns))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.other


def _dense(rng: random.Random) -> Workload:
    rows, inner, columns = rng.choice([1, 4, 16, 64, 196]), rng.choice([96, 160, 384, 640]), rng.choice([80, 192, 512])
    return nn.Linear(inner, columns), (rows, inner)


def _batch_matmul(rng: random.Random) -> Workload:
    batch, rows, inner, columns = (rng.choice(sizes) for sizes in ([4, 8, 12], [32, 64, 128], [24, 64], [48, 96]))
    return BatchMatmul(batch, inner, columns), (batch, rows, inner)


def _conv(rng: random.Random) -> Workload:
    c_in, c_out, size = rng.choice([16, 48, 72, 144]), rng.choice([24, 56, 104, 208]), rng.choice([10, 20, 26, 40])
    kernel = rng.choice([1, 3, 5])
    return nn.Sequential(nn.Conv2d(c_in, c_out, kernel, rng.choice([1, 2]), kernel // 2), nn.ReLU()), (
        1,
        c_in,
        size,
        size,
    )


def _depthwise(rng: random.Random) -> Workload:
    channels, size, kernel = rng.choice([40, 88, 168, 336]), rng.choice([10, 20, 36, 60]), rng.choice([3, 5])
    conv = nn.Conv2d(channels, channels, kernel, rng.choice([1, 2]), kernel // 2, groups=channels)
    return nn.Sequential(conv, nn.ReLU6()), (1, channels, size, size)


def _grouped(rng: random.Random) -> Workload:
    groups, each, size = rng.choice([2, 4, 8]), rng.choice([12, 24, 32]), rng.choice([14, 20, 28])
    return nn.Conv2d(groups * each, groups * each, 3, padding=1, groups=groups), (1, groups * each, size, size)


def _dilated(rng: random.Random) -> Workload:
    channels, size, dilation = rng.choice([24, 40, 72]), rng.choice([18, 26, 34]), rng.choice([2, 3])
    return nn.Conv2d(channels, channels, 3, padding=dilation, dilation=dilation), (1, channels, size, size)


def _transposed(rng: random.Random) -> Workload:
    c_in, c_out, size = rng.choice([32, 48, 96]), rng.choice([16, 24, 40]), rng.choice([7, 10, 14])
    return nn.ConvTranspose2d(c_in, c_out, 4, 2, 1), (1, c_in, size, size)


def _conv1d(rng: random.Random) -> Workload:
    c_in, c_out, size = rng.choice([24, 48, 96]), rng.choice([32, 64, 120]), rng.choice([100, 160, 256])
    return nn.Conv1d(c_in, c_out, rng.choice([3, 5]), padding=2), (1, c_in, size)


def _softmax(rng: random.Random) -> Workload:
    return nn.Softmax(-1), (rng.choice([16, 64, 196, 384]), rng.choice([128, 200, 512, 1000]))


def _layer_norm(rng: random.Random) -> Workload:
    rows, width = rng.choice([32, 100, 196]), rng.choice([160, 384, 640])
    return nn.LayerNorm(width), (rows, width)


def _pooling(rng: random.Random) -> Workload:
    channels, size, kernel = rng.choice([24, 80, 160]), rng.choice([18, 28, 44]), rng.choice([2, 3])
    pool = rng.choice([nn.MaxPool2d, nn.AvgPool2d])(kernel, 2)
    return pool, (1, channels, size, size)


def _attention(rng: random.Random) -> Workload:
    heads, each, length = rng.choice([2, 4]), rng.choice([24, 40]), rng.choice([48, 80])
    return Attention(heads * each, heads), (1, length, heads * each)


#: Kind of operator -> function that samples its shapes.
KINDS: dict[str, Callable[[random.Random], Workload]] = {
    "dense": _dense,
    "batch-matmul": _batch_matmul,
    "conv2d": _conv,
    "depthwise-conv2d": _depthwise,
    "grouped-conv2d": _grouped,
    "dilated-conv2d": _dilated,
    "transposed-conv2d": _transposed,
    "conv1d": _conv1d,
    "softmax": _softmax,
    "layer-norm": _layer_norm,
    "pooling": _pooling,
    "attention": _attention,
}


def operator(kind: str, number: int) -> Workload:
    """The ``number``-th random operator of a kind in :data:`KINDS`, with its input shape; deterministic."""
    return KINDS[kind](random.Random(f"{kind}/{number}"))
