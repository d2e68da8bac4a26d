"""The kernels that are left beside the products of small networks, and what the networks compute."""

from __future__ import annotations

import doctest
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from torch import nn
from torch.nn import functional
from tvm import relax

from tests.lowering.relax_modules import build, outputs, weights
from tvm_gnn_cost.lowering import views
from tvm_gnn_cost.lowering.blocks import root_of
from tvm_gnn_cost.lowering.kernels import kernel_calls
from tvm_gnn_cost.lowering.layouts import legalize
from tvm_gnn_cost.schedulers.meta_schedule.compile import CompiledNetwork
from tvm_gnn_cost.schedulers.meta_schedule.networks import load_network
from tvm_gnn_cost.schedulers.meta_schedule.target import local_target


def kinds(mod: tvm.IRModule) -> Counter[str]:
    """The number of kernels of each kind: products, reductions, those that only move values, and the other elementwise.

    Reshapes between kernels are no kernels.
    """
    found = (_kind(mod[call.args[0]], str(call.args[0].name_hint)) for call in kernel_calls(mod))
    return Counter(kind for kind in found if kind is not None)


def _kind(function: tvm.tirx.PrimFunc, name: str) -> str | None:
    schedule = tvm.s_tir.Schedule(function)
    blocks = [schedule.get(item) for item in schedule.get_child_blocks(root_of(schedule))]
    sums = [item for item in blocks if item.init is not None]
    values = [item.body.value for item in blocks if isinstance(item.body, tvm.tirx.BufferStore)]
    if sums:
        return "product" if len(sums) == 1 and len(sums[0].reads) == 2 else "reduction"
    if name.rstrip("0123456789") == "reshape":
        return None
    return "move" if all(isinstance(value, tvm.ir.TensorLoad) for value in values) else "elementwise"


class Heads(nn.Module):
    """Attention with its products, masked if ``is_causal``."""

    def __init__(self, size: int, heads: int, is_causal: bool) -> None:
        super().__init__()
        self.parts = nn.ModuleList([nn.Linear(size, size) for _ in range(4)])
        self.heads, self.is_causal = heads, is_causal

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, rows, size = x.shape
        shape = (batch, rows, self.heads, size // self.heads)
        query, key, value = (part(x).view(shape).transpose(1, 2) for part in list(self.parts)[:3])
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=self.is_causal)
        return self.parts[3](mixed.transpose(1, 2).reshape(batch, rows, size))


class Layer(nn.Module):
    """A layer of a transformer; as in GPT-2, its weights may take two axes, and GELU is a tanh of a power."""

    def __init__(self, is_gpt: bool) -> None:
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(32), nn.LayerNorm(32)])
        self.heads, self.is_gpt = Heads(32, 4, is_gpt), is_gpt
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.heads(self.norms[0](x))
        if not self.is_gpt:
            return x + self.down(functional.gelu(self.up(self.norms[1](x))))
        wide = self.up(self.norms[1](x).view(-1, 32)).view(*x.shape[:2], 64)
        bent = 0.5 * wide * (1.0 + torch.tanh(0.7978845608 * (wide + 0.044715 * torch.pow(wide, 3.0))))
        return x + self.down(bent.view(-1, 64)).view(x.shape)


class Scaled(nn.Module):
    """A block of an EfficientNet or MobileNetV3, with hard-swish in its parts."""

    def __init__(self) -> None:
        super().__init__()
        self.deep, self.last = nn.Conv2d(16, 16, 3, padding=1, groups=16), nn.Conv2d(16, 8, 1)
        self.first, self.down, self.up = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        x = self.deep(x * (x + 3).clamp(0, 6) / 6)
        scale = torch.sigmoid(self.up(functional.relu(self.down(x.mean((2, 3), keepdim=True)))))
        return self.last(x * scale)


class Bottleneck(nn.Module):
    """A block of MobileNetV2 whose ReLU6 is a maximum and a minimum."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.deep = nn.Conv2d(8, 32, 1), nn.Conv2d(32, 32, 3, padding=1, groups=32)
        self.first, self.last = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(32, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        zero, six = torch.tensor(0.0), torch.tensor(6.0)
        y = torch.minimum(torch.maximum(self.wide(x), zero), six)
        return x + self.last(torch.minimum(torch.maximum(self.deep(y), zero), six))


class Next(nn.Module):
    """A block of ConvNeXt, with a layer norm over the channels."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.deep = nn.Conv2d(3, 16, 4, 4), nn.Conv2d(16, 16, 7, padding=3, groups=16)
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 64), nn.Linear(64, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        y = self.norm(self.deep(x).permute(0, 2, 3, 1))
        return x + self.down(functional.gelu(self.up(y))).permute(0, 3, 1, 2)


class Pyramid(nn.Module):
    """A part of a YOLO: SiLU, parts of the channels, concatenation and resizing."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner = nn.Conv2d(3, 16, 3, 2, 1), nn.Conv2d(8, 8, 3, padding=1)
        self.down, self.last = nn.Conv2d(24, 16, 3, 2, 1), nn.Conv2d(40, 8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.silu(self.first(x))
        left, right = x.chunk(2, 1)
        x = torch.cat([left, right, right + functional.silu(self.inner(right))], 1)
        y = functional.interpolate(functional.silu(self.down(x)), scale_factor=2.0)
        return functional.silu(self.last(torch.cat([x, y], 1)))


def test_its_examples_hold() -> None:
    assert doctest.testmod(views).failed == 0


def heads(builder: relax.BlockBuilder, x: relax.Expr, number: int, count: int) -> relax.Expr:
    """Heads of 8 columns from a slice of a product's columns, as (batch, head, row, column)."""
    part = builder.emit(relax.op.strided_slice(x, [2], [8 * number], [8 * (number + count)]))
    parted = builder.emit(relax.op.reshape(part, (2, 17, count, 8)))
    return builder.emit(relax.op.permute_dims(parted, (0, 2, 1, 3)))


def grouped(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """Attention of four heads with two keys, masked; a part of its rows has no key, so that its softmax is NaN."""
    query, key, value = heads(builder, x, 0, 4), heads(builder, x, 4, 2), heads(builder, x, 6, 2)
    repeated = []
    for item in (key, value):
        wide = builder.emit(relax.op.reshape(item, (2, 2, 1, 17, 8)))
        wide = builder.emit(relax.op.broadcast_to(wide, (2, 2, 2, 17, 8)))
        repeated.append(builder.emit(relax.op.reshape(wide, (2, 4, 17, 8))))
    turned = builder.emit(relax.op.permute_dims(repeated[0], (0, 1, 3, 2)))
    half = relax.const(0.5, "float32")
    scores = builder.emit(relax.op.matmul(relax.op.multiply(query, half), relax.op.multiply(turned, half)))
    mask = np.triu(np.full((17, 17), -np.inf, np.float32), 1)
    mask[3] = -np.inf
    scores = builder.emit(relax.op.add(scores, relax.const(mask[None, None])))
    shares = builder.emit(relax.op.nn.softmax(scores, axis=-1))
    shares = builder.emit(relax.op.where(relax.op.isnan(shares), relax.const(0.0, "float32"), shares))
    mixed = builder.emit(relax.op.matmul(shares, repeated[1]))
    mixed = builder.emit(relax.op.reshape(relax.op.permute_dims(mixed, (0, 2, 1, 3)), (2, 17, 32)))
    return relax.op.matmul(mixed, weights(32, 24))


def test_attention_reads_its_heads_in_place() -> None:
    mod = build(grouped, (2, 17, 64))
    lowered, _ = legalize(mod)
    assert dict(kinds(lowered)) == {"product": 3, "reduction": 1}
    (output,), (expected,) = outputs(lowered), outputs(mod)
    assert not output[:, 3].any()
    np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-5)


def root_mean_square(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    squares = builder.emit(relax.op.mean(builder.emit(relax.op.multiply(x, x)), [2], True))
    deviation = builder.emit(relax.op.sqrt(relax.op.add(squares, relax.const(1e-6, "float32"))))
    return relax.op.multiply(x, relax.op.divide(relax.const(1.0, "float32"), deviation))


def of_differences(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """A layer norm as exporters wrote it before ONNX had one."""
    centered = builder.emit(relax.op.subtract(x, builder.emit(relax.op.mean(x, [2], True))))
    squares = builder.emit(relax.op.mean(builder.emit(relax.op.multiply(centered, centered)), [2], True))
    return relax.op.divide(centered, relax.op.sqrt(relax.op.add(squares, relax.const(1e-5, "float32"))))


def with_outer_epsilon(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """Mean-variance normalization."""
    deviation = builder.emit(relax.op.sqrt(builder.emit(relax.op.variance(x, [1, 2], True))))
    centered = builder.emit(relax.op.subtract(x, builder.emit(relax.op.mean(x, [1, 2], True))))
    return relax.op.divide(centered, relax.op.add(deviation, relax.const(1e-9, "float32")))


def test_a_group_norm_reads_channels_last_values_in_place() -> None:
    def emit(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        y = builder.emit(relax.op.nn.conv2d(x, weights(8, 3, 3, 3), padding=(1, 1)))
        groups = builder.emit(relax.op.reshape(y, (2, 4, 50)))
        centered = builder.emit(relax.op.subtract(groups, builder.emit(relax.op.mean(groups, [2], True))))
        variance = builder.emit(relax.op.variance(groups, [2], True))
        deviation = builder.emit(relax.op.sqrt(relax.op.add(variance, relax.const(1e-5, "float32"))))
        normalized = builder.emit(relax.op.reshape(relax.op.divide(centered, deviation), (2, 8, 5, 5)))
        scaled = builder.emit(relax.op.nn.silu(relax.op.multiply(normalized, weights(8, 1, 1))))
        return relax.op.nn.conv2d(scaled, weights(3, 8, 1, 1))

    mod = build(emit, (2, 3, 5, 5))
    lowered, _ = legalize(mod)
    # The output is transposed; scale and SiLU are one kernel.
    assert dict(kinds(lowered)) == {"product": 2, "reduction": 1, "move": 1, "elementwise": 1}
    np.testing.assert_allclose(outputs(lowered)[0], outputs(mod)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("emit", [root_mean_square, of_differences, with_outer_epsilon])
def test_a_normalization_is_one_kernel(emit: Callable[..., Any]) -> None:
    mod = build(emit, (3, 10, 16))
    lowered, _ = legalize(mod)
    assert dict(kinds(lowered)) == {"reduction": 1}
    np.testing.assert_allclose(outputs(lowered)[0], outputs(mod)[0], rtol=1e-5, atol=1e-5)


def test_a_difference_from_another_mean_is_no_normalization() -> None:
    def emit(builder: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
        centered = builder.emit(relax.op.subtract(x, builder.emit(relax.op.mean(x, [1], True))))
        variance = builder.emit(relax.op.variance(x, [2], True))
        return relax.op.divide(centered, relax.op.sqrt(relax.op.add(variance, relax.const(1e-5, "float32"))))

    mod = build(emit, (3, 10, 16))
    np.testing.assert_allclose(outputs(legalize(mod)[0])[0], outputs(mod)[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("module", "shape", "expected"),
    [
        (Layer(False), (1, 10, 32), {"product": 8, "reduction": 3}),
        (Layer(True), (1, 10, 32), {"product": 8, "reduction": 3}),
        # The scale is no epilogue of the product that computes it, which has a single row.
        (Scaled(), (1, 3, 16, 16), {"move": 1, "product": 5, "reduction": 1, "elementwise": 1}),
        (Bottleneck(), (1, 3, 16, 16), {"move": 1, "product": 4}),
        (Next(), (1, 3, 32, 32), {"move": 1, "product": 4, "reduction": 1}),
        (Pyramid(), (1, 3, 32, 32), {"move": 2, "product": 4, "elementwise": 2}),
    ],
    ids=["vit", "gpt-2", "mobilenet-v3", "mobilenet-v2", "convnext", "yolo"],
)
def test_outputs_are_transposed_and_little_is_left_beside_the_products(
    module: nn.Module, shape: tuple[int, ...], expected: dict[str, int], tmp_path: Any
) -> None:
    torch.manual_seed(0)
    module.eval()
    x = torch.randn(shape)
    path = tmp_path / "net.onnx"
    torch.onnx.export(module, (x,), dynamo=True, verbose=False).save(str(path))
    network = load_network(str(path))
    assert dict(kinds(network.mod)) == expected
    (output,) = CompiledNetwork(network.mod, local_target(), None).run({"x": x.numpy()})
    np.testing.assert_allclose(output, module(x).detach().numpy(), rtol=1e-4, atol=1e-5)
