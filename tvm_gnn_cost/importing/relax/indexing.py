"""Gathers, one-hot encoding, reversed sequences and bit casts.

Negative indices count from the end, and all indices are clamped, so that nothing is accessed outside of a tensor.
Constant indices are clamped once, in NumPy.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax, te, tirx

from tvm_gnn_cost.importing.relax.rules import Primitive, Unsupported, positive, rule


@rule("Gather", moves=True)
def gather(node: Primitive) -> relax.Expr:
    """Gathers along an axis; slices if the indices are constant and evenly spaced."""
    shape, out = node.shape(0), node.out_shape()
    axis = positive(node.attribute("axis"), len(shape))
    if 0 in out:
        return empty(node)
    if node.is_constant(1):
        places = inside(node.constant(1, "indices"), shape[axis])
        return relax.op.reshape(taken(node, node.tensor(0), places.reshape(-1), shape[axis], axis), out)
    # This mode wraps indices modulo the size.
    if node.shape(1):
        return relax.op.take(node.tensor(0), node.tensor(1), axis, "wrap")
    return relax.op.reshape(relax.op.take(node.tensor(0), relax.op.reshape(node.tensor(1), [1]), axis, "wrap"), out)


def taken(node: Primitive, x: relax.Expr, places: npt.NDArray[Any], size: int, axis: int) -> relax.Expr:
    """Takes constant indices, which are in bounds, along an axis."""
    steps = np.unique(np.diff(places))
    if places.size == 1 or (steps.size == 1 and steps[0] > 0):
        step = int(steps[0]) if steps.size else 1
        start, end = int(places[0]), int(places[-1]) + 1
        return x if (start, end, step) == (0, size, 1) else relax.op.strided_slice(x, [axis], [start], [end], [step])
    # TVM warns about its "fast" mode, although the indices are in bounds.
    return relax.op.take(x, node.const(places.astype(np.int64)), axis, "clip")


def inside(indices: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Constant indices, made nonnegative.

    Raises:
        Unsupported: an index is out of bounds.
    """
    result = np.where(indices < 0, indices.astype(np.int64) + size, indices.astype(np.int64))
    if result.size and not (result.min() >= 0 and result.max() < size):
        raise Unsupported(f"its indices are out of bounds for an axis of size {size}")
    return result


def empty(node: Primitive) -> relax.Expr:
    """An empty output."""
    return node.const(np.zeros(node.out_shape(), np.float32), str(node.output().dtype))


def held(index: Any, size: int) -> Any:
    """An index in a tensor expression, made nonnegative and clamped."""
    index = index.astype("int64")
    wrapped = tirx.Select(index < 0, index + size, index)
    return tirx.max(tirx.min(wrapped, tirx.const(size - 1, "int64")), tirx.const(0, "int64"))


@rule("GatherElements", moves=True)
def gather_elements(node: Primitive) -> relax.Expr:
    """Gathers one element per index."""
    shape, out = node.shape(0), node.out_shape()
    axis = positive(node.attribute("axis"), len(shape))
    if 0 in out:
        return empty(node)
    if node.is_constant(1):
        flat = linear_elements(inside(node.constant(1, "indices"), shape[axis]), shape, axis)
        x = relax.op.reshape(node.tensor(0), [prod(shape)])
        return relax.op.reshape(taken(node, x, flat.reshape(-1), prod(shape), 0), out)

    def picked(x: te.Tensor, indices: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            return x[(*i[:axis], held(indices[i], shape[axis]), *i[axis + 1 :])]

        return te.compute(out, element, name="gather_elements")

    return node.te(picked, node.tensor(0), node.tensor(1), name="gather_elements")


def linear_elements(indices: npt.NDArray[Any], shape: tuple[int, ...], axis: int) -> npt.NDArray[Any]:
    """Positions of the elements in the flattened tensor."""
    grid = np.indices(indices.shape)
    grid[axis] = indices
    return np.asarray(np.ravel_multi_index(tuple(grid), shape), np.int64)


@rule("GatherND", moves=True)
def gather_nd(node: Primitive) -> relax.Expr:
    """Gathers slices by indices on several axes; constant indices become rows with these axes flattened."""
    shape, batch, depth, out = node.shape(0), int(node.attribute("batch_dims")), node.shape(1)[-1], node.out_shape()
    if 0 in out:
        return empty(node)
    rows, rest = shape[: batch + depth], shape[batch + depth :]
    if node.is_constant(1):
        x = relax.op.reshape(node.tensor(0), [prod(rows), *rest])
        places = linear_rows(node.constant(1, "indices"), rows, batch)
        return relax.op.reshape(taken(node, x, places.reshape(-1), prod(rows), 0), out)
    count = len(node.shape(1)) - 1

    def picked(x: te.Tensor, indices: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            places = [held(indices[(*i[:count], k)], size) for k, size in enumerate(rows[batch:])]
            return x[(*i[:batch], *places, *i[count:])]

        return te.compute(out, element, name="gather_nd")

    return node.te(picked, node.tensor(0), node.tensor(1), name="gather_nd")


def linear_rows(indices: npt.NDArray[Any], rows: tuple[int, ...], batch: int) -> npt.NDArray[Any]:
    """The rows of constant index tuples when the indexed axes are flattened."""
    places = [inside(indices[..., k], size) for k, size in enumerate(rows[batch:])]
    batches = np.indices(indices.shape[:-1])[:batch]
    return np.asarray(np.ravel_multi_index((*batches, *places), rows), np.int64)


@rule("OneHot", moves=True)
def one_hot(node: Primitive) -> relax.Expr:
    """One-hot encoding on a new axis; an index that is out of bounds selects nothing."""
    depth = int(node.constant(1, "depth").reshape(-1)[0])
    out = node.out_shape()
    axis = positive(node.attribute("axis"), len(out))
    indices: Any = node.tensor(0)
    if node.value(0).dtype.kind not in "iu":
        indices = relax.op.astype(relax.op.astype(indices, "float32"), "int64")
    indices = node.emit(relax.op.expand_dims(relax.op.astype(indices, "int64"), axis))
    places = np.arange(depth).reshape([-1 if item == axis else 1 for item in range(len(out))])
    wrapped = relax.op.where(
        relax.op.less(indices, node.const(0, "int64")), relax.op.add(indices, node.const(depth, "int64")), indices
    )
    hit = relax.op.equal(wrapped, node.const(places, "int64"))
    off, on = (relax.op.reshape(relax.op.strided_slice(node.tensor(2), [0], [i], [i + 1]), []) for i in range(2))
    return relax.op.where(hit, on, off)


@rule("ReverseSequence", moves=True)
def reverse_sequence(node: Primitive) -> relax.Expr:
    """Reverses the first elements of each sequence, by its length."""
    batch, time, out = node.attribute("batch_axis"), node.attribute("time_axis"), node.out_shape()

    def reverse(x: te.Tensor, lengths: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            length = tirx.min(lengths[i[batch]].astype("int64"), tirx.const(out[time], "int64"))
            step = i[time].astype("int64")
            place = list(i)
            place[time] = tirx.Select(step < length, length - 1 - step, step)
            return x[tuple(place)]

        return te.compute(out, element, name="reverse_sequence")

    return node.te(reverse, node.tensor(0), node.tensor(1), name="reverse_sequence")


@rule("BitCast", moves=True)
def bit_cast(node: Primitive) -> relax.Expr:
    """Reinterprets bits as another type of the same width."""
    wanted = str(node.output().dtype)
    if node.value(0).dtype.itemsize != node.output().dtype.itemsize:
        raise Unsupported("its types have different widths")
    if "bool" in (wanted, node.dtype(0)):
        return relax.op.astype(node.tensor(0), wanted)

    def bits(x: te.Tensor) -> te.Tensor:
        return te.compute(x.shape, lambda *i: tirx.reinterpret(wanted, x[i]), name="bit_cast")

    return node.te(bits, node.tensor(0), name="bit_cast")
