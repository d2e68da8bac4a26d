"""Random layers with shapes of real networks, including the operators that are fused with them.

A layer is sampled like a part of a network: an architecture family, a stage, and the resolution of that stage for some
input size. So widths and resolutions are realistic together, unlike those of :mod:`.operators`, which older records
refer to. No layer has the widths and resolution of a convolution of the test networks.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from tvm_gnn_cost.networks.operators import Workload
from tvm_gnn_cost.networks.sequence import Attention


@dataclass(frozen=True)
class Family:
    """Widths of an architecture's stages.

    Attributes:
        widths: Stride of a stage -> its numbers of channels.
        tested: Whether a test network has such stages.
    """

    widths: dict[int, tuple[int, ...]]
    tested: bool = False


#: From the papers of the architectures, including variants of several sizes.
FAMILIES = {
    "resnet": Family({4: (64, 256), 8: (128, 512), 16: (256, 1024), 32: (512, 2048)}, tested=True),
    "mobilenet": Family(
        {2: (16, 32, 96), 4: (24, 144), 8: (32, 192), 16: (64, 96, 384, 576), 32: (160, 320, 960, 1280)}, tested=True
    ),
    "inception": Family(
        {2: (32, 64), 4: (80, 192), 8: (48, 96, 288), 16: (160, 192, 768), 32: (320, 448)}, tested=True
    ),
    "mobilenet-v3": Family(
        {2: (16, 64), 4: (24, 72), 8: (40, 120), 16: (80, 112, 200, 480, 672), 32: (160, 960)}, tested=True
    ),
    "efficientnet": Family(
        {2: (24, 40), 4: (24, 32, 144), 8: (40, 48, 240), 16: (80, 120, 136, 672), 32: (192, 232, 1152)}, tested=True
    ),
    "mnasnet": Family({2: (16, 32), 4: (24, 48), 8: (40, 72), 16: (80, 96, 240, 480), 32: (192, 576)}),
    "densenet": Family({4: (64, 96, 160, 256), 8: (128, 224, 512), 16: (256, 480, 800), 32: (512, 736, 1024)}),
    "vgg": Family({1: (64,), 2: (128,), 4: (256,), 8: (512,), 16: (512,)}),
    "squeezenet": Family({4: (16, 64, 128), 8: (32, 128, 256), 16: (48, 64, 384, 512)}),
    "shufflenet": Family({4: (24,), 8: (58, 88, 116), 16: (116, 176, 232), 32: (232, 352, 464)}),
    "regnet": Family({4: (24, 48, 96), 8: (56, 104, 192), 16: (120, 208, 432), 32: (368, 440, 1008)}),
    "convnext": Family({4: (96, 128), 8: (192, 256), 16: (384, 512), 32: (768, 1024)}),
    "unet": Family({1: (32, 64), 2: (64, 128), 4: (128, 256), 8: (256, 512), 16: (512, 1024)}),
    "darknet": Family({2: (32, 64), 4: (64, 128), 8: (128, 256), 16: (256, 512), 32: (512, 1024)}),
    "ghostnet": Family({2: (16, 48), 4: (24, 72), 8: (40, 120), 16: (80, 112, 184), 32: (160, 480)}),
    "segmentation": Family({4: (48, 64), 8: (96, 128, 256), 16: (160, 256, 304), 32: (320, 512)}),
}

#: Widths and numbers of heads of transformers: BERT, GPT-2, T5, DistilBERT, ViT, DeiT, Swin, Whisper, MiniLM.
TRANSFORMERS = (
    (128, 2), (192, 3), (256, 4), (312, 12), (384, 6), (384, 12), (512, 8), (640, 10), (768, 12), (1024, 16),
)  # fmt: skip

#: Numbers of tokens of texts, and of images of several sizes in patches of 8, 14, 16 and 32 pixels.
_LENGTHS = (16, 32, 49, 50, 64, 77, 96, 128, 144, 196, 197, 256, 257, 384)

_SIZES = (96, 112, 128, 160, 176, 192, 240, 256, 288, 320, 352, 384, 416)
#: Input sizes that test networks also have.
_USUAL_SIZES = (224, 224, 224, 299)

#: ResNet-18's stages are 64 channels of 56 rows, 128 of 28, 256 of 14 and 512 of 7; other networks have the same.
_RESNET_18 = 64 * 56

#: Maximum number of multiplications of a layer: bad schedules of larger layers take too long to measure.
_MOST_MULTIPLICATIONS = 2e8

_ACTIVATIONS: tuple[Callable[[], nn.Module], ...] = (
    nn.ReLU, nn.ReLU, nn.ReLU, nn.ReLU6, nn.ReLU6, nn.SiLU, nn.Hardswish, nn.LeakyReLU, nn.Identity, nn.Identity,
)  # fmt: skip


class Residual(nn.Module):
    """A module with a residual connection before its activation."""

    def __init__(self, body: nn.Module, activation: nn.Module) -> None:
        super().__init__()
        self.body, self.activation = body, activation

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.activation(self.body(x) + x)
        return out


class Apply(nn.Module):
    """A function of one tensor as a module."""

    def __init__(self, name: str, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.name, self.function = name, function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)

    def extra_repr(self) -> str:
        """The function's name."""
        return self.name


class SqueezeExcite(nn.Module):
    """Squeeze-and-excitation (Hu et al. 2017, arXiv:1709.01507)."""

    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, squeezed, 1), nn.Conv2d(squeezed, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        scale = self.up(functional.relu(self.down(x.mean((2, 3), keepdim=True))))
        return x * torch.sigmoid(scale)


class Scores(nn.Module):
    """The two matrix products of attention."""

    def forward(self, x: Tensor) -> Tensor:
        return (x @ x.transpose(-1, -2)) @ x


class RootMeanSquareNorm(nn.Module):
    """RMS norm (Zhang and Sennrich 2019, arXiv:1910.07467)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * self.scale


def _stage(rng: random.Random) -> tuple[Family, int, int]:
    """A family, a stage of it, and its resolution."""
    family = FAMILIES[rng.choice(list(FAMILIES))]
    size = rng.choice(_SIZES if family.tested else _SIZES + _USUAL_SIZES)
    stride = rng.choice(list(family.widths))
    return family, stride, math.ceil(size / stride)


def _activation(rng: random.Random) -> nn.Module:
    return rng.choice(_ACTIVATIONS)()


def _image(channels: int, size: int) -> tuple[int, int, int, int]:
    return (1, channels, size, size)


def _spatial(rng: random.Random, kernel: tuple[int, int], strides: tuple[int, ...]) -> Workload:
    """A convolution between two widths of a stage, or to the next stage."""
    while True:
        family, at, size = _stage(rng)
        c_in = rng.choice(family.widths[at])
        stride = rng.choice(strides)
        c_out = rng.choice(family.widths.get(at * stride, family.widths[at]))
        out = math.ceil(size / stride)
        if c_in * size == _RESNET_18:
            continue
        if size > 1 and c_in * c_out * kernel[0] * kernel[1] * out * out <= _MOST_MULTIPLICATIONS:
            padding = (kernel[0] // 2, kernel[1] // 2)
            conv = nn.Conv2d(c_in, c_out, kernel, stride, padding)
            if stride == 1 and c_in == c_out and rng.random() < 0.4:
                return Residual(conv, _activation(rng)), _image(c_in, size)
            return nn.Sequential(conv, _activation(rng)), _image(c_in, size)


def _pointwise(rng: random.Random) -> Workload:
    return _spatial(rng, (1, 1), (1, 1, 1, 1, 2))


def _conv3x3(rng: random.Random) -> Workload:
    return _spatial(rng, (3, 3), (1, 1, 1, 2))


def _wide_conv(rng: random.Random) -> Workload:
    return _spatial(rng, rng.choice([(5, 5), (7, 7), (1, 7), (7, 1), (1, 3), (3, 1), (2, 2)]), (1, 1, 2))


def _stem(rng: random.Random) -> Workload:
    size, c_out = rng.choice(_SIZES), rng.choice([16, 24, 32, 48, 64, 96])
    kernel, stride = rng.choice([(3, 2), (3, 2), (7, 2), (3, 1), (4, 4), (16, 16)])
    conv = nn.Conv2d(rng.choice([1, 3, 3, 3, 4]), c_out, kernel, stride, kernel // 2 if kernel % 2 else 0)
    return nn.Sequential(conv, _activation(rng)), _image(conv.in_channels, size)


def _depthwise(rng: random.Random) -> Workload:
    while True:
        family, at, size = _stage(rng)
        channels, kernel, stride = rng.choice(family.widths[at]), rng.choice([3, 3, 3, 5, 5, 7]), rng.choice([1, 1, 2])
        if channels * size * size <= 2e6 and size > kernel // 2:
            conv = nn.Conv2d(channels, channels, kernel, stride, kernel // 2, groups=channels)
            return nn.Sequential(conv, _activation(rng)), _image(channels, size)


def _grouped(rng: random.Random) -> Workload:
    while True:
        _, at, size = _stage(rng)
        each, groups = rng.choice([4, 8, 16, 24, 32, 48]), rng.choice([2, 4, 8, 16, 32])
        channels = each * groups
        if channels <= 32 * at and channels * each * 9 * size * size <= _MOST_MULTIPLICATIONS / 2:
            conv = nn.Conv2d(channels, channels, 3, rng.choice([1, 1, 2]), 1, groups=groups)
            return nn.Sequential(conv, _activation(rng)), _image(channels, size)


def _dilated(rng: random.Random) -> Workload:
    while True:
        family, at, size = _stage(rng)
        c_in, c_out, dilation = rng.choice(family.widths[at]), rng.choice([32, 48, 64, 128]), rng.choice([2, 3, 4, 6])
        if size > dilation and c_in * c_out * 9 * size * size <= _MOST_MULTIPLICATIONS:
            conv = nn.Conv2d(c_in, c_out, 3, 1, dilation, dilation)
            return nn.Sequential(conv, _activation(rng)), _image(c_in, size)


def _transposed(rng: random.Random) -> Workload:
    while True:
        family, at, size = _stage(rng)
        c_in, c_out = rng.choice(family.widths[at]), rng.choice(family.widths.get(at // 2, family.widths[at]))
        kernel, padding = rng.choice([(2, 0), (4, 1)])
        if size > 1 and c_in * c_out * kernel * kernel * size * size <= _MOST_MULTIPLICATIONS / 2:
            conv = nn.ConvTranspose2d(c_in, c_out, kernel, 2, padding)
            return nn.Sequential(conv, _activation(rng)), _image(c_in, size)


def _conv1d(rng: random.Random) -> Workload:
    c_in, c_out = rng.choice([40, 64, 80, 128, 256, 384]), rng.choice([32, 64, 128, 192, 384])
    kernel, length = rng.choice([1, 3, 5, 7, 9]), rng.choice([50, 100, 128, 200, 256, 400])
    conv = nn.Conv1d(c_in, c_out, kernel, rng.choice([1, 1, 2]), kernel // 2)
    return nn.Sequential(conv, _activation(rng)), (1, c_in, length)


def _linear(rng: random.Random) -> Workload:
    while True:
        (width, _), length = rng.choice(TRANSFORMERS), rng.choice((1, 1, 4, 8, *_LENGTHS))
        other = rng.choice([width, 3 * width, 4 * width, 2 * width, 10, 100, 1000])
        inner, columns = (width, other) if rng.random() < 0.6 or other < width else (other, width)
        if length * inner * columns <= _MOST_MULTIPLICATIONS:
            linear = nn.Linear(inner, columns, bias=rng.random() < 0.8)
            if inner == columns and rng.random() < 0.5:
                return Residual(linear, nn.Identity()), (length, inner)
            after = rng.choice([nn.Identity, nn.Identity, nn.GELU, nn.ReLU, nn.SiLU, nn.Tanh, nn.Sigmoid])()
            return nn.Sequential(linear, after), (length, inner)


def _products(rng: random.Random) -> Workload:
    while True:
        (width, heads), length = rng.choice(TRANSFORMERS), rng.choice(_LENGTHS)
        if heads * length * length * (width // heads) <= _MOST_MULTIPLICATIONS / 4:
            return Scores(), (heads, length, width // heads)


def _self_attention(rng: random.Random) -> Workload:
    while True:
        (width, heads), length = rng.choice(TRANSFORMERS), rng.choice(_LENGTHS)
        if length * width * (width + length) <= _MOST_MULTIPLICATIONS:
            return Attention(width, heads), (1, length, width)


def _normalisation(rng: random.Random) -> Workload:
    if rng.random() < 0.6:
        (width, _), length = rng.choice(TRANSFORMERS), rng.choice(_LENGTHS)
        return rng.choice([nn.LayerNorm, RootMeanSquareNorm])(width), (1, length, width)
    while True:
        family, at, size = _stage(rng)
        channels = rng.choice(family.widths[at])
        if channels % 8 == 0 and channels * size * size <= 2e6:
            norm = nn.GroupNorm(8, channels) if rng.random() < 0.5 else nn.InstanceNorm2d(channels, affine=True)
            return norm, _image(channels, size)


def _softmax(rng: random.Random) -> Workload:
    length = rng.choice(_LENGTHS)
    shape = rng.choice(
        [(rng.choice([1, 8, 64]), rng.choice([10, 100, 1000])), (rng.choice(TRANSFORMERS)[1], length, length)]
    )
    return rng.choice([nn.Softmax, nn.Softmax, nn.LogSoftmax])(-1), shape


def _pooling(rng: random.Random) -> Workload:
    while True:
        family, at, size = _stage(rng)
        channels = rng.choice(family.widths[at])
        if channels * size * size > 2e6 or size < 4:
            continue
        kernel, stride, padding = rng.choice([(2, 2, 0), (3, 2, 1), (3, 1, 1), (5, 1, 2)])
        pools = (
            nn.MaxPool2d(kernel, stride, padding),
            nn.AvgPool2d(kernel, stride, padding),
            nn.AdaptiveAvgPool2d(1),
            nn.AdaptiveAvgPool2d(1),
        )
        return rng.choice(pools), _image(channels, size)


def _reduction(rng: random.Random) -> Workload:
    functions = {
        "mean over positions": lambda x: x.mean((2, 3)),
        "mean over channels": lambda x: x.mean(1),
        "sum of squares": lambda x: (x * x).sum(1),
        "largest channel": lambda x: torch.max(x, 1).values,
    }
    while True:
        family, at, size = _stage(rng)
        channels = rng.choice(family.widths[at])
        if channels * size * size <= 4e6:
            name = rng.choice(list(functions))
            return Apply(name, functions[name]), _image(channels, size)


def _elementwise(rng: random.Random) -> Workload:
    functions: dict[str, Callable[[Tensor], Tensor]] = {
        "gelu": functional.gelu,
        "silu": functional.silu,
        "hardswish": functional.hardswish,
        "gated": lambda x: x[:, ::2] * torch.sigmoid(x[:, 1::2]),
        "joined": lambda x: torch.cat([functional.relu(x), x], 1),
        "upsampled": lambda x: functional.interpolate(x, scale_factor=2.0, mode="nearest"),
        "shuffled": lambda x: x.reshape(1, 2, -1, *x.shape[2:]).transpose(1, 2).reshape(x.shape),
        "padded": lambda x: functional.pad(x, (1, 1, 1, 1)),
    }
    while True:
        family, at, size = _stage(rng)
        channels = rng.choice(family.widths[at])
        if channels % 2 == 0 and channels * size * size <= 2e6:
            name = rng.choice(list(functions))
            return Apply(name, functions[name]), _image(channels, size)


def _squeeze_excite(rng: random.Random) -> Workload:
    while True:
        family, at, size = _stage(rng)
        channels = rng.choice(family.widths[at])
        if channels * size * size <= 2e6:
            return SqueezeExcite(channels, max(8, channels // rng.choice([4, 16]))), _image(channels, size)


#: Kind of layer -> its percentage, and the function that samples a layer.
LAYERS: dict[str, tuple[int, Callable[[random.Random], Workload]]] = {
    "pointwise-layer": (20, _pointwise),
    "conv3x3-layer": (18, _conv3x3),
    "wide-conv-layer": (6, _wide_conv),
    "stem-layer": (2, _stem),
    "depthwise-layer": (12, _depthwise),
    "grouped-layer": (4, _grouped),
    "dilated-layer": (2, _dilated),
    "transposed-layer": (2, _transposed),
    "conv1d-layer": (2, _conv1d),
    "linear-layer": (12, _linear),
    "products-layer": (3, _products),
    "attention-layer": (2, _self_attention),
    "normalisation-layer": (3, _normalisation),
    "softmax-layer": (2, _softmax),
    "pooling-layer": (3, _pooling),
    "reduction-layer": (2, _reduction),
    "elementwise-layer": (3, _elementwise),
    "squeeze-excite-layer": (2, _squeeze_excite),
}


def layer(kind: str, number: int) -> Workload:
    """The ``number``-th random layer of a kind in :data:`LAYERS`, with its input shape; deterministic."""
    return LAYERS[kind][1](random.Random(f"{kind}/{number}"))


def layer_names(count: int) -> list[str]:
    """Names of about ``count`` layers, with the kinds interleaved in the proportions of :data:`LAYERS`.

    >>> len(layer_names(100)), layer_names(100)[0]
    (100, 'pointwise-layer/0')
    """
    wanted = {kind: max(1, count * share // 100) for kind, (share, _) in LAYERS.items()}
    # Interleaved, so that an interrupted collection has layers of every kind.
    places = [((number + 0.5) / total, kind, number) for kind, total in wanted.items() for number in range(total)]
    return [f"{kind}/{number}" for _, kind, number in sorted(places)]
