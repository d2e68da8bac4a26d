"""Small JAX networks whose layouts are measured: convolutional, transformer, MLP-mixer and recurrent ones.

They are written with :class:`~tvm_gnn_cost.xla_cpu.layouts.Operations`, which can
constrain the layouts of their dots, convolutions and reshapes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from tvm_gnn_cost.xla_cpu.layouts import Operations


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


def _shufflenet(ops: Operations, size: int, widths: Sequence[int], batch: int = 1) -> Array:
    x = _conv_relu(ops, ops.parameter(batch, size, size, 3), widths[0], stride=2)
    for width in widths:
        y = _shuffle(ops, _conv_relu(ops, x, width, kernel=1), groups=4)
        y = _conv_relu(ops, y, width, groups=width)
        y = _conv_relu(ops, y, width, kernel=1)
        x = x + y if y.shape == x.shape else jnp.concatenate([x, y], axis=-1)
    return _classify(ops, x)


def _convnext(ops: Operations, size: int, patch: int, width: int, blocks: int) -> Array:
    x = _patches(ops, ops.parameter(1, size, size, 3), patch, width, flat=False)
    for _ in range(blocks):
        x = x + _feed_forward(ops, _norm(_conv(ops, x, width, kernel=7, groups=width)), 3 * width)
    return _classify(ops, x)


def _bottleneck(ops: Operations, size: int, widths: Sequence[int], batch: int) -> Array:
    x = _conv_relu(ops, ops.parameter(batch, size, size, 3), widths[0], stride=2)
    for width in widths:
        y = _conv_relu(ops, _conv_relu(ops, x, width // 4, kernel=1), width // 4)
        y = _conv(ops, y, width, kernel=1)
        x = jax.nn.relu(y + (x if y.shape == x.shape else _conv(ops, x, width, kernel=1)))
    return _classify(ops, x)


def _unet(ops: Operations, size: int, widths: Sequence[int]) -> Array:
    x = ops.parameter(1, size, size, 3)
    skipped = []
    for width in widths[:-1]:
        skipped.append(_conv_relu(ops, x, width))
        x = _pool(skipped[-1])
    x = _conv_relu(ops, x, widths[-1])
    for skip in reversed(skipped):
        wide = jnp.repeat(jnp.repeat(x, 2, axis=1), 2, axis=2)
        x = _conv_relu(ops, jnp.concatenate([wide, skip], axis=-1), skip.shape[-1])
    return _conv(ops, x, 4, kernel=1)


def encoder(
    ops: Operations, layers: int, width: int, heads: int, length: int, batch: int = 1, *, causal: bool = False
) -> Array:
    """A transformer encoder; the speed benchmark builds long ones."""
    x = ops.parameter(batch, length, width)
    return _layers(ops, x, layers, 4 * width, lambda y: _attention(ops, y, heads, causal=causal))


def _linear_encoder(ops: Operations, layers: int, width: int, heads: int, length: int, batch: int) -> Array:
    def attend(y: Array) -> Array:
        query, key, value = (_heads(ops, y, heads) for _ in range(3))
        # Keys and values are multiplied first, so that no matrix of length by length is made.
        state = ops.dot(jnp.swapaxes(jax.nn.softmax(key, axis=2), 2, 3), value, batch=2)
        return _joined(ops, ops.dot(jax.nn.softmax(query, axis=3), state, batch=2))

    return _layers(ops, ops.parameter(batch, length, width), layers, 2 * width, attend)


def _multi_query_encoder(ops: Operations, layers: int, width: int, heads: int, length: int, batch: int) -> Array:
    def attend(y: Array) -> Array:
        # All heads share one key and one value.
        key, value = (ops.dot(y, ops.parameter(width, width // heads)) for _ in range(2))
        query = ops.reshape(ops.dot(y, ops.parameter(width, width)), batch, length * heads, width // heads)
        weights = ops.dot(query, jnp.swapaxes(key, 1, 2), batch=1) / jnp.sqrt(width / heads)
        out = ops.reshape(ops.dot(jax.nn.softmax(weights, axis=-1), value, batch=1), batch, length, width)
        return ops.dot(out, ops.parameter(width, width))

    return _layers(ops, ops.parameter(batch, length, width), layers, 3 * width, attend)


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


def _autoencoder(ops: Operations, batch: int, widths: Sequence[int]) -> Array:
    x = ops.reshape(ops.parameter(batch, 16, widths[0] // 16), batch, widths[0])
    for width in (*widths[1:], *reversed(widths[:-1])):
        x = jax.nn.gelu(ops.dot(x, ops.parameter(x.shape[1], width)) + ops.parameter(width))
    return ops.reshape(x, batch, 16, widths[0] // 16)


def _conv_mixer(ops: Operations, size: int, patch: int, width: int, blocks: int) -> Array:
    x = _patches(ops, ops.parameter(1, size, size, 3), patch, width, flat=False)
    for _ in range(blocks):
        x = x + _conv_relu(ops, x, width, kernel=5, groups=width)
        x = _conv_relu(ops, x, width, kernel=1)
    return _classify(ops, x)


def _lstm(ops: Operations, steps: int, width: int, batch: int, layers: int = 1) -> Array:
    x = [ops.parameter(batch, width) for _ in range(steps)]
    for _ in range(layers):
        forward, back = ops.parameter(width, 4 * width), ops.parameter(width, 4 * width)
        hidden = cell = jnp.zeros((batch, width))
        for step in range(steps):
            gates = ops.dot(x[step], forward) + ops.dot(hidden, back)
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


def _attended_gru(ops: Operations, steps: int, width: int, batch: int) -> Array:
    sequence = ops.parameter(batch, 24, width)
    back, out = ops.parameter(2 * width, 3 * width), ops.parameter(2 * width, width)
    hidden = jnp.zeros((batch, width))
    for _ in range(steps):
        # Each step looks at the whole sequence with its state.
        weights = jax.nn.softmax(ops.dot(sequence, hidden[:, :, None], batch=1)[:, :, 0], axis=-1)
        seen = ops.dot(weights[:, None], sequence, batch=1)[:, 0]
        reset, update, _ = jnp.split(ops.dot(jnp.concatenate([hidden, seen], axis=-1), back), 3, axis=-1)
        new = jnp.tanh(ops.dot(jnp.concatenate([jax.nn.sigmoid(reset) * hidden, seen], axis=-1), out))
        update = jax.nn.sigmoid(update)
        hidden = update * hidden + (1 - update) * new
    return hidden


def _minimal_gated(ops: Operations, steps: int, width: int, batch: int) -> Array:
    sequence = ops.parameter(steps, batch, width)
    projected = ops.dot(ops.reshape(sequence, steps * batch, width), ops.parameter(width, 2 * width))
    projected = ops.reshape(projected, steps, batch, 2 * width)
    keep, change = ops.parameter(width, width), ops.parameter(width, width)
    hidden = jnp.zeros((batch, width))
    for step in range(steps):
        gate, new = jnp.split(projected[step], 2, axis=-1)
        gate = jax.nn.sigmoid(gate + ops.dot(hidden, keep))
        hidden = (1 - gate) * hidden + gate * jnp.tanh(new + ops.dot(gate * hidden, change))
    return hidden


def _elman(ops: Operations, steps: int, width: int, batch: int, layers: int) -> Array:
    x = [ops.parameter(batch, width) for _ in range(steps)]
    for _ in range(layers):
        forward, back = ops.parameter(width, width), ops.parameter(width, width)
        hidden = jnp.zeros((batch, width))
        for step in range(steps):
            hidden = jnp.tanh(ops.dot(x[step], forward) + ops.dot(hidden, back))
            x[step] = hidden
    return hidden


def _conv_lstm(ops: Operations, steps: int, size: int, width: int) -> Array:
    x = [ops.parameter(1, size, size, width) for _ in range(steps)]
    kernel = ops.parameter(3, 3, 2 * width, 4 * width)
    hidden = cell = jnp.zeros((1, size, size, width))
    for step in x:
        gates = ops.convolution(jnp.concatenate([step, hidden], axis=-1), kernel)
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


def _layers(ops: Operations, x: Array, count: int, wide: int, attend: Callable[[Array], Array]) -> Array:
    """Layers of attention and a feed-forward network, each after a normalisation."""
    for _ in range(count):
        x = x + attend(_norm(x))
        x = x + _feed_forward(ops, _norm(x), wide)
    return _norm(x)


def _feed_forward(ops: Operations, x: Array, width: int) -> Array:
    wide = jax.nn.gelu(ops.dot(x, ops.parameter(x.shape[-1], width)))
    return ops.dot(wide, ops.parameter(width, x.shape[-1]))


def _attention(ops: Operations, x: Array, heads: int, seen: Array | None = None, *, causal: bool = False) -> Array:
    source = x if seen is None else seen
    query, key, value = _heads(ops, x, heads), _heads(ops, source, heads), _heads(ops, source, heads)
    weights = ops.dot(query, jnp.swapaxes(key, 2, 3), batch=2) / jnp.sqrt(x.shape[-1] / heads)
    if causal:
        weights = jnp.where(jnp.tril(jnp.ones(weights.shape[2:], bool)), weights, -1e9)
    return _joined(ops, ops.dot(jax.nn.softmax(weights, axis=-1), value, batch=2))


def _heads(ops: Operations, x: Array, heads: int) -> Array:
    """Projects [batch, length, width] and splits it into [batch, heads, length, width / heads]."""
    width = x.shape[-1]
    flat = ops.dot(x, ops.parameter(width, width))
    return jnp.swapaxes(ops.reshape(flat, *x.shape[:2], heads, width // heads), 1, 2)


def _joined(ops: Operations, x: Array) -> Array:
    """The inverse of :func:`_heads`."""
    batch, heads, length, narrow = x.shape
    flat = ops.reshape(jnp.swapaxes(x, 1, 2), batch, length, heads * narrow)
    return ops.dot(flat, ops.parameter(heads * narrow, heads * narrow))


def _shuffle(ops: Operations, x: Array, groups: int) -> Array:
    """Shuffles channels between groups."""
    split = ops.reshape(x, *x.shape[:3], groups, x.shape[-1] // groups)
    return ops.reshape(jnp.swapaxes(split, 3, 4), *x.shape)


def _patches(ops: Operations, image: Array, patch: int, width: int, *, flat: bool = True) -> Array:
    kernel = ops.parameter(patch, patch, image.shape[-1], width)
    x = ops.convolution(image, kernel, patch)
    return ops.reshape(x, x.shape[0], -1, width) if flat else x


def _networks() -> dict[str, XlaNetwork]:
    families: dict[str, dict[str, dict[str, Any]]] = {
        "convolutional": {
            "train": {
                "vgg-a": partial(_vgg, size=32, widths=(16, 32, 64)),
                "resnet-a": partial(_resnet, size=32, widths=(16, 32, 64)),
                "mobilenet-a": partial(_mobilenet, size=64, widths=(16, 32, 64, 64)),
                "inception-a": partial(_inception, size=32, widths=(16, 32)),
                "squeezenet-a": partial(_squeezenet, size=48, widths=(16, 32, 48)),
                "resnet-b": partial(_resnet, size=24, widths=(32, 48), batch=4),
                "shufflenet-a": partial(_shufflenet, size=48, widths=(32, 64, 64)),
                "convnext-a": partial(_convnext, size=64, patch=4, width=48, blocks=2),
                "bottleneck-a": partial(_bottleneck, size=20, widths=(64, 96, 128), batch=4),
                "unet-a": partial(_unet, size=32, widths=(16, 32, 48)),
            },
            "valid": {
                "densenet-a": partial(_densenet, size=48, growth=12, layers=4),
                "shufflenet-b": partial(_shufflenet, size=32, widths=(48, 96), batch=2),
            },
            "test": {
                "mobilenet-b": partial(_mobilenet, size=48, widths=(24, 48, 96), batch=2),
                "resnet-c": partial(_resnet, size=40, widths=(24, 32, 48, 64)),
                "convnext-b": partial(_convnext, size=48, patch=4, width=64, blocks=3),
                "bottleneck-b": partial(_bottleneck, size=16, widths=(96, 96, 160), batch=6),
                "densenet-b": partial(_densenet, size=40, growth=16, layers=5),
            },
        },
        "transformer": {
            "train": {
                "encoder-a": partial(encoder, layers=1, width=128, heads=4, length=64, batch=2),
                "decoder-a": partial(_decoder, width=96, heads=3, length=48, memory=64),
                "vit-a": partial(_vision_transformer, size=64, patch=8, width=96, heads=4),
                "gated-a": partial(_gated_encoder, width=128, heads=8, length=80, batch=1),
                "encoder-b": partial(encoder, layers=2, width=64, heads=2, length=96, batch=1, causal=True),
                "encoder-c": partial(encoder, layers=1, width=192, heads=6, length=32, batch=4),
                "linear-a": partial(_linear_encoder, layers=2, width=96, heads=3, length=80, batch=1),
                "query-a": partial(_multi_query_encoder, layers=2, width=96, heads=4, length=64, batch=1),
                "encoder-e": partial(encoder, layers=2, width=96, heads=6, length=48, batch=2),
                "decoder-b": partial(_decoder, width=128, heads=4, length=64, memory=32),
            },
            "valid": {
                "vit-b": partial(_vision_transformer, size=48, patch=4, width=64, heads=2),
                "linear-b": partial(_linear_encoder, layers=1, width=128, heads=4, length=96, batch=2),
            },
            "test": {
                "encoder-d": partial(encoder, layers=1, width=160, heads=5, length=100, batch=1, causal=True),
                "vit-c": partial(_vision_transformer, size=80, patch=8, width=128, heads=2),
                "query-b": partial(_multi_query_encoder, layers=1, width=128, heads=8, length=96, batch=2),
                "vit-d": partial(_vision_transformer, size=72, patch=6, width=112, heads=4),
                "decoder-c": partial(_decoder, width=64, heads=4, length=96, memory=80),
            },
        },
        "mixer": {
            "train": {
                "mixer-a": partial(_mixer, size=64, patch=8, width=96, blocks=2),
                "gmlp-a": partial(_gated_mlp, length=64, width=128, blocks=3),
                "perceptron-a": partial(_perceptron, batch=64, widths=(256, 512, 256, 512, 128)),
                "convmixer-a": partial(_conv_mixer, size=64, patch=4, width=32, blocks=3),
                "mixer-b": partial(_mixer, size=48, patch=8, width=160, blocks=3, batch=2),
                "gmlp-b": partial(_gated_mlp, length=48, width=96, blocks=4, batch=2),
                "mixer-d": partial(_mixer, size=40, patch=4, width=64, blocks=2, batch=2),
                "gmlp-d": partial(_gated_mlp, length=80, width=80, blocks=3),
                "perceptron-c": partial(_perceptron, batch=128, widths=(128, 384, 192, 384, 192, 64)),
                "autoencoder-a": partial(_autoencoder, batch=32, widths=(784, 256, 128, 64)),
            },
            "valid": {
                "perceptron-b": partial(_perceptron, batch=32, widths=(1024, 256, 768, 256, 256, 64)),
                "mixer-e": partial(_mixer, size=56, patch=7, width=112, blocks=2),
            },
            "test": {
                "mixer-c": partial(_mixer, size=80, patch=10, width=128, blocks=2),
                "gmlp-c": partial(_gated_mlp, length=96, width=112, blocks=2),
                "perceptron-d": partial(_perceptron, batch=96, widths=(320, 320, 320, 320, 320, 32)),
                "gmlp-e": partial(_gated_mlp, length=56, width=144, blocks=3),
                "autoencoder-b": partial(_autoencoder, batch=48, widths=(512, 320, 160, 80)),
            },
        },
        "recurrent": {
            "train": {
                "lstm-a": partial(_lstm, steps=5, width=128, batch=16),
                "gru-a": partial(_gru, steps=6, width=128, batch=16),
                "elman-a": partial(_elman, steps=5, width=192, batch=32, layers=2),
                "convlstm-a": partial(_conv_lstm, steps=5, size=16, width=16),
                "gru-b": partial(_gru, steps=5, width=96, batch=32, both_ways=True),
                "lstm-b": partial(_lstm, steps=4, width=96, batch=48, layers=2),
                "attended-a": partial(_attended_gru, steps=5, width=96, batch=16),
                "minimal-a": partial(_minimal_gated, steps=6, width=144, batch=24),
                "elman-b": partial(_elman, steps=6, width=128, batch=64, layers=2),
                "lstm-d": partial(_lstm, steps=5, width=112, batch=32),
            },
            "valid": {
                "convlstm-b": partial(_conv_lstm, steps=4, size=20, width=12),
                "minimal-b": partial(_minimal_gated, steps=5, width=112, batch=48),
            },
            "test": {
                "lstm-c": partial(_lstm, steps=6, width=160, batch=24),
                "gru-c": partial(_gru, steps=4, width=160, batch=24, both_ways=True),
                "attended-b": partial(_attended_gru, steps=4, width=128, batch=32),
                "minimal-c": partial(_minimal_gated, steps=7, width=96, batch=32),
                "elman-c": partial(_elman, steps=4, width=160, batch=48, layers=3),
            },
        },
    }
    return {
        name: XlaNetwork(name, family, split, function)
        for family, splits in families.items()
        for split, members in splits.items()
        for name, function in members.items()
    }


#: The networks by name.
NETWORKS = _networks()
