"""Small JAX networks whose layouts are measured: convolutional, transformer, MLP-mixer and recurrent ones.

They are written with :class:`~tvm_gnn_cost.tpugraphs.layouts.Operations`, so that their dots, convolutions and reshapes
can be given layouts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from tvm_gnn_cost.tpugraphs.layouts import Operations


@dataclass(frozen=True)
class XlaNetwork:
    """A network to measure.

    Attributes:
        name: The name of its npz file.
        family: ``convolutional``, ``transformer``, ``mixer`` or ``recurrent``.
        split: ``train``, ``valid`` or ``test``.
        function: Computes the output with the given operations.
    """

    name: str
    family: str
    split: str
    function: Callable[[Operations], Array]


def _vgg(ops: Operations, size: int, widths: Sequence[int], batch: int = 1) -> Array:
    x = ops.parameter(batch, size, size, 3)
    for width in widths:
        for _ in range(2):
            x = _conv_relu(ops, x, width)
        x = _pool(x)
    x = ops.reshape(x, batch, -1)
    x = jax.nn.relu(ops.dot(x, ops.parameter(x.shape[1], 128)))
    return ops.dot(x, ops.parameter(128, 10))


def _resnet(ops: Operations, size: int, widths: Sequence[int], batch: int = 1) -> Array:
    x = _conv_relu(ops, ops.parameter(batch, size, size, 3), widths[0])
    for number, width in enumerate(widths):
        stride = 1 if number == 0 else 2
        y = _conv_relu(ops, x, width, stride=stride)
        y = _conv(ops, y, width)
        x = x if y.shape == x.shape else _conv(ops, x, width, kernel=1, stride=stride)
        x = jax.nn.relu(x + y)
    return _classify(ops, x)


def _mobilenet(ops: Operations, size: int, widths: Sequence[int], batch: int = 1) -> Array:
    x = _conv_relu(ops, ops.parameter(batch, size, size, 3), widths[0], stride=2)
    for number, width in enumerate(widths):
        x = _conv_relu(ops, x, x.shape[-1], stride=1 + number % 2, groups=x.shape[-1])
        x = _conv_relu(ops, x, width, kernel=1)
    return _classify(ops, x)


def _inception(ops: Operations, size: int, widths: Sequence[int]) -> Array:
    x = _pool(_conv_relu(ops, ops.parameter(1, size, size, 3), widths[0]))
    for width in widths:
        narrow = _conv_relu(ops, x, width // 2, kernel=1)
        branches = [_conv_relu(ops, x, width, kernel=1), _conv_relu(ops, narrow, width)]
        branches.append(_conv_relu(ops, _conv_relu(ops, narrow, width // 2), width // 2, kernel=5))
        x = jnp.concatenate(branches, axis=-1)
    return _classify(ops, x)


def _squeezenet(ops: Operations, size: int, widths: Sequence[int]) -> Array:
    x = _pool(_conv_relu(ops, ops.parameter(1, size, size, 3), widths[0]))
    for width in widths:
        narrow = _conv_relu(ops, x, width // 4, kernel=1)
        x = jnp.concatenate([_conv_relu(ops, narrow, width, kernel=1), _conv_relu(ops, narrow, width)], axis=-1)
    return _classify(ops, x)


def _densenet(ops: Operations, size: int, growth: int, layers: int) -> Array:
    x = _conv_relu(ops, ops.parameter(1, size, size, 3), 2 * growth, stride=2)
    for _ in range(layers):
        x = jnp.concatenate([x, _conv_relu(ops, _conv_relu(ops, x, 2 * growth, kernel=1), growth)], axis=-1)
    return _classify(ops, x)


def encoder(
    ops: Operations, layers: int, width: int, heads: int, length: int, batch: int = 1, *, causal: bool = False
) -> Array:
    """A transformer encoder; the speed benchmark builds long ones."""
    x = ops.parameter(batch, length, width)
    for _ in range(layers):
        x = x + _attention(ops, _norm(x), heads, causal=causal)
        x = x + _feed_forward(ops, _norm(x), 4 * width)
    return _norm(x)


def _gated_encoder(ops: Operations, width: int, heads: int, length: int, batch: int) -> Array:
    x = ops.parameter(batch, length, width)
    x = x + _attention(ops, _norm(x), heads, causal=True)
    y = _norm(x)
    gate = jax.nn.silu(ops.dot(y, ops.parameter(width, 3 * width)))
    y = gate * ops.dot(y, ops.parameter(width, 3 * width))
    return x + ops.dot(y, ops.parameter(3 * width, width))


def _vision_transformer(ops: Operations, size: int, patch: int, width: int, heads: int) -> Array:
    x = _patches(ops, ops.parameter(1, size, size, 3), patch, width)
    x = x + _attention(ops, _norm(x), heads)
    x = x + _feed_forward(ops, _norm(x), 3 * width)
    return ops.dot(x.mean(axis=1), ops.parameter(width, 100))


def _decoder(ops: Operations, width: int, heads: int, length: int, memory: int) -> Array:
    x, seen = ops.parameter(1, length, width), ops.parameter(1, memory, width)
    x = x + _attention(ops, _norm(x), heads, causal=True)
    x = x + _attention(ops, _norm(x), heads, seen)
    return x + _feed_forward(ops, _norm(x), 2 * width)


def _mixer(ops: Operations, size: int, patch: int, width: int, blocks: int, batch: int = 1) -> Array:
    x = _patches(ops, ops.parameter(batch, size, size, 3), patch, width)
    for _ in range(blocks):
        y = jnp.swapaxes(_norm(x), 1, 2)
        x = x + jnp.swapaxes(_feed_forward(ops, y, 2 * y.shape[-1]), 1, 2)
        x = x + _feed_forward(ops, _norm(x), 2 * width)
    return ops.dot(x.mean(axis=1), ops.parameter(width, 100))


def _gated_mlp(ops: Operations, length: int, width: int, blocks: int, batch: int = 1) -> Array:
    x = ops.parameter(batch, length, width)
    for _ in range(blocks):
        y = jax.nn.gelu(ops.dot(_norm(x), ops.parameter(width, 2 * width)))
        kept, gate = jnp.split(y, 2, axis=-1)
        gate = ops.dot(jnp.swapaxes(_norm(gate), 1, 2), ops.parameter(length, length))
        x = x + ops.dot(kept * jnp.swapaxes(gate, 1, 2), ops.parameter(width, width))
    return x


def _perceptron(ops: Operations, batch: int, widths: Sequence[int]) -> Array:
    x = ops.parameter(batch, widths[0] // 16, 16)
    x = ops.reshape(x, batch, widths[0])
    for width in widths[1:]:
        x = jax.nn.relu(ops.dot(x, ops.parameter(x.shape[1], width)) + ops.parameter(width))
    return x


def _conv_mixer(ops: Operations, size: int, patch: int, width: int, blocks: int) -> Array:
    x = _patches(ops, ops.parameter(1, size, size, 3), patch, width, flat=False)
    for _ in range(blocks):
        x = x + _conv_relu(ops, x, width, kernel=5, groups=width)
        x = _conv_relu(ops, x, width, kernel=1)
    return _classify(ops, x)


def _lstm(ops: Operations, steps: int, width: int, batch: int, layers: int = 1) -> Array:
    x = [ops.parameter(batch, width) for _ in range(steps)]
    for _ in range(layers):
        own, back = ops.parameter(width, 4 * width), ops.parameter(width, 4 * width)
        hidden = cell = jnp.zeros((batch, width))
        for step in range(steps):
            gates = ops.dot(x[step], own) + ops.dot(hidden, back)
            enter, keep, leave, new = jnp.split(gates, 4, axis=-1)
            cell = jax.nn.sigmoid(keep) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
            hidden = jax.nn.sigmoid(leave) * jnp.tanh(cell)
            x[step] = hidden
    return hidden


def _gru(ops: Operations, steps: int, width: int, batch: int, *, both_ways: bool = False) -> Array:
    sequence = ops.parameter(batch, steps, width)
    ends = []
    for backwards in (False, True)[: 1 + both_ways]:
        # One dot projects the whole sequence; the states follow one by one.
        projected = ops.dot(ops.reshape(sequence, batch * steps, width), ops.parameter(width, 3 * width))
        projected = ops.reshape(projected, batch, steps, 3 * width)
        back = ops.parameter(width, 3 * width)
        hidden = jnp.zeros((batch, width))
        for step in reversed(range(steps)) if backwards else range(steps):
            reset, update, new = jnp.split(projected[:, step], 3, axis=-1)
            own_reset, own_update, own_new = jnp.split(ops.dot(hidden, back), 3, axis=-1)
            update = jax.nn.sigmoid(update + own_update)
            new = jnp.tanh(new + jax.nn.sigmoid(reset + own_reset) * own_new)
            hidden = update * hidden + (1 - update) * new
        ends.append(hidden)
    return ops.dot(jnp.concatenate(ends, axis=-1), ops.parameter(width * len(ends), 64))


def _elman(ops: Operations, steps: int, width: int, batch: int, layers: int) -> Array:
    x = [ops.parameter(batch, width) for _ in range(steps)]
    for _ in range(layers):
        own, back = ops.parameter(width, width), ops.parameter(width, width)
        hidden = jnp.zeros((batch, width))
        for step in range(steps):
            hidden = jnp.tanh(ops.dot(x[step], own) + ops.dot(hidden, back))
            x[step] = hidden
    return hidden


def _conv_lstm(ops: Operations, steps: int, size: int, width: int) -> Array:
    x = [ops.parameter(1, size, size, width) for _ in range(steps)]
    kernel = ops.parameter(3, 3, 2 * width, 4 * width)
    hidden = cell = jnp.zeros((1, size, size, width))
    for one in x:
        gates = ops.convolution(jnp.concatenate([one, hidden], axis=-1), kernel)
        enter, keep, leave, new = jnp.split(gates, 4, axis=-1)
        cell = jax.nn.sigmoid(keep) * cell + jax.nn.sigmoid(enter) * jnp.tanh(new)
        hidden = jax.nn.sigmoid(leave) * jnp.tanh(cell)
    return hidden


def _conv(ops: Operations, x: Array, width: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> Array:
    weights = ops.parameter(kernel, kernel, x.shape[-1] // groups, width)
    return ops.convolution(x, weights, stride, groups) + ops.parameter(width)


def _conv_relu(ops: Operations, x: Array, width: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> Array:
    return jax.nn.relu(_conv(ops, x, width, kernel, stride, groups))


def _pool(x: Array) -> Array:
    return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def _classify(ops: Operations, x: Array) -> Array:
    return ops.dot(x.mean(axis=(1, 2)), ops.parameter(x.shape[-1], 10))


def _norm(x: Array) -> Array:
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(jnp.square(centred).mean(axis=-1, keepdims=True) + 1e-5)


def _feed_forward(ops: Operations, x: Array, width: int) -> Array:
    wide = jax.nn.gelu(ops.dot(x, ops.parameter(x.shape[-1], width)))
    return ops.dot(wide, ops.parameter(width, x.shape[-1]))


def _attention(ops: Operations, x: Array, heads: int, seen: Array | None = None, *, causal: bool = False) -> Array:
    width = x.shape[-1]

    def project(one: Array) -> Array:
        flat = ops.dot(one, ops.parameter(width, width))
        return jnp.swapaxes(ops.reshape(flat, *one.shape[:2], heads, width // heads), 1, 2)

    source = x if seen is None else seen
    query, key, value = project(x), project(source), project(source)
    weights = ops.dot(query, jnp.swapaxes(key, 2, 3), batch=2) / jnp.sqrt(width / heads)
    if causal:
        weights = jnp.where(jnp.tril(jnp.ones(weights.shape[2:], bool)), weights, -1e9)
    out = jnp.swapaxes(ops.dot(jax.nn.softmax(weights, axis=-1), value, batch=2), 1, 2)
    return ops.dot(ops.reshape(out, *x.shape), ops.parameter(width, width))


def _patches(ops: Operations, image: Array, patch: int, width: int, *, flat: bool = True) -> Array:
    kernel = ops.parameter(patch, patch, image.shape[-1], width)
    x = ops.convolution(image, kernel, patch)
    return ops.reshape(x, x.shape[0], -1, width) if flat else x


def _networks() -> dict[str, XlaNetwork]:
    # In each family the last two networks are for the test, the one before them validates.
    families: dict[str, dict[str, Any]] = {
        "convolutional": {
            "vgg-a": partial(_vgg, size=32, widths=(16, 32, 64)),
            "resnet-a": partial(_resnet, size=32, widths=(16, 32, 64)),
            "mobilenet-a": partial(_mobilenet, size=64, widths=(16, 32, 64, 64)),
            "inception-a": partial(_inception, size=32, widths=(16, 32)),
            "squeezenet-a": partial(_squeezenet, size=48, widths=(16, 32, 48)),
            "resnet-b": partial(_resnet, size=24, widths=(32, 48), batch=4),
            "densenet-a": partial(_densenet, size=48, growth=12, layers=4),
            "mobilenet-b": partial(_mobilenet, size=48, widths=(24, 48, 96), batch=2),
            "resnet-c": partial(_resnet, size=40, widths=(24, 32, 48, 64)),
        },
        "transformer": {
            "encoder-a": partial(encoder, layers=1, width=128, heads=4, length=64, batch=2),
            "decoder-a": partial(_decoder, width=96, heads=3, length=48, memory=64),
            "vit-a": partial(_vision_transformer, size=64, patch=8, width=96, heads=4),
            "gated-a": partial(_gated_encoder, width=128, heads=8, length=80, batch=1),
            "encoder-b": partial(encoder, layers=2, width=64, heads=2, length=96, batch=1, causal=True),
            "encoder-c": partial(encoder, layers=1, width=192, heads=6, length=32, batch=4),
            "vit-b": partial(_vision_transformer, size=48, patch=4, width=64, heads=2),
            "encoder-d": partial(encoder, layers=1, width=160, heads=5, length=100, batch=1, causal=True),
            "vit-c": partial(_vision_transformer, size=80, patch=8, width=128, heads=2),
        },
        "mixer": {
            "mixer-a": partial(_mixer, size=64, patch=8, width=96, blocks=2),
            "gmlp-a": partial(_gated_mlp, length=64, width=128, blocks=3),
            "perceptron-a": partial(_perceptron, batch=64, widths=(256, 512, 256, 512, 128)),
            "convmixer-a": partial(_conv_mixer, size=64, patch=4, width=32, blocks=3),
            "mixer-b": partial(_mixer, size=48, patch=8, width=160, blocks=3, batch=2),
            "gmlp-b": partial(_gated_mlp, length=48, width=96, blocks=4, batch=2),
            "perceptron-b": partial(_perceptron, batch=32, widths=(1024, 256, 768, 256, 256, 64)),
            "mixer-c": partial(_mixer, size=80, patch=10, width=128, blocks=2),
            "gmlp-c": partial(_gated_mlp, length=96, width=112, blocks=2),
        },
        "recurrent": {
            "lstm-a": partial(_lstm, steps=5, width=128, batch=16),
            "gru-a": partial(_gru, steps=6, width=128, batch=16),
            "elman-a": partial(_elman, steps=5, width=192, batch=32, layers=2),
            "convlstm-a": partial(_conv_lstm, steps=5, size=16, width=16),
            "gru-b": partial(_gru, steps=5, width=96, batch=32, both_ways=True),
            "lstm-b": partial(_lstm, steps=4, width=96, batch=48, layers=2),
            "convlstm-b": partial(_conv_lstm, steps=4, size=20, width=12),
            "lstm-c": partial(_lstm, steps=6, width=160, batch=24),
            "gru-c": partial(_gru, steps=4, width=160, batch=24, both_ways=True),
        },
    }
    splits = (*("train",) * 6, "valid", "test", "test")
    return {
        name: XlaNetwork(name, family, split, function)
        for family, members in families.items()
        for (name, function), split in zip(members.items(), splits, strict=True)
    }


#: The networks by name.
NETWORKS = _networks()
