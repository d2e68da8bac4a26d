"""Expands Fourier transforms to products with constant matrices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.importing.graph import Tensor
from tvm_gnn_cost.importing.simplify import Call, Expansion, Refused, Simplifier, Value

#: Maximum number of elements of a transform matrix.
_LARGEST = 2**25


def transform(simplifier: Simplifier, call: Call) -> Sequence[Value]:
    """``DFT``: the transform of one axis; the last axis holds real and imaginary parts, or only real parts."""
    value = call.tensor(0)
    rank = len(value.shape)
    if call.version < 20:
        axis = int(call.attributes["axis"]) % rank
    else:
        axis = (-2 if call.input(2) is None else _number(call, 2, "axis")) % rank
    size, parts = value.shape[axis], value.shape[-1]
    is_one_sided, is_inverse = bool(call.attributes["onesided"]), bool(call.attributes["inverse"])
    is_real = is_one_sided and is_inverse
    length = _number(call, 1, "length") if call.input(1) is not None else (2 * size - 2 if is_real else size)
    kept = length // 2 + 1 if is_one_sided and not is_inverse else length
    if is_real:
        numpy: Callable[..., Any] = np.fft.irfft
    else:
        numpy = np.fft.ifft if is_inverse else np.fft.fft
    out_parts = 1 if is_real else 2
    matrix = _matrix(lambda rows: numpy(rows, length), size, parts, kept, out_parts).astype(value.dtype)
    order = [*(item for item in range(rank) if item not in (axis, rank - 1)), axis, rank - 1]
    lines = [value.shape[item] for item in order[:-2]]
    moved = simplifier.emit("Transpose", value, perm=order, name=call.name)
    rows = _reshaped(simplifier, call, moved, prod(lines), size * parts)
    result = simplifier.emit("MatMul", rows, matrix, name=call.name)
    result = _reshaped(simplifier, call, result, *lines, kept, out_parts)
    back = [order.index(item) for item in range(rank)]
    return [simplifier.emit("Transpose", result, perm=back, name=call.name)]


def short_time_transform(simplifier: Simplifier, call: Call) -> Sequence[Value]:
    """``STFT``: the transforms of sliding windows."""
    value, window = call.tensor(0), call.input(2)
    batch, samples, *rest = value.shape
    parts = rest[0] if rest else 1
    step = _number(call, 1, "step")
    if call.input(3) is not None:
        length = _number(call, 3, "length")
    elif isinstance(window, Tensor | np.ndarray):
        length = window.shape[0]
    else:
        raise Refused("it has neither a window nor a length")
    frames = (samples - length) // step + 1
    kept = length // 2 + 1 if call.attributes["onesided"] else length
    weights = window.astype(np.float64) if isinstance(window, np.ndarray) else np.ones(length)
    if weights.shape != (length,):
        raise Refused(f"its window has {weights.size} numbers for a length of {length}")
    matrix = _matrix(lambda rows: np.fft.fft(rows * weights, length), length, parts, kept, 2).astype(value.dtype)
    places = np.arange(frames)[:, None] * step + np.arange(length)
    signal = _reshaped(simplifier, call, value, batch, samples, parts)
    x = simplifier.emit("Gather", signal, places, axis=1, name=call.name)
    if isinstance(window, Tensor):
        x = simplifier.emit("Mul", x, _reshaped(simplifier, call, window, length, 1), name=call.name)
    x = _reshaped(simplifier, call, x, batch * frames, length * parts)
    output = simplifier.emit("MatMul", x, matrix, name=call.name)
    return [_reshaped(simplifier, call, output, batch, frames, kept, 2)]


def _number(call: Call, position: int, meaning: str) -> int:
    return int(call.constant(position, meaning).reshape(-1)[0])


def _reshaped(simplifier: Simplifier, call: Call, value: Value, *shape: int) -> Value:
    reshaped: Value = simplifier.emit("Reshape", value, np.array(shape, np.int64), name=call.name)
    return reshaped


def _matrix(
    transform: Callable[[npt.NDArray[Any]], npt.NDArray[Any]], size: int, parts: int, kept: int, out_parts: int
) -> npt.NDArray[Any]:
    """The matrix of a linear transform, with one row for each real and imaginary part."""
    if size * parts * kept * out_parts > _LARGEST:
        raise Refused(f"its transform of size {size} needs a matrix of more than {_LARGEST} elements")
    units = np.eye(size)
    rows = np.stack([units, 1j * units][:parts], axis=1).reshape(size * parts, size)
    matrix = transform(rows)[:, :kept]
    return np.stack([matrix.real, matrix.imag][:out_parts], axis=-1).reshape(size * parts, kept * out_parts)


#: Operator -> its expansion.
EXPANSIONS: dict[str, Expansion] = {"DFT": transform, "STFT": short_time_transform}
