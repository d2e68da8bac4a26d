"""Operators that rearrange, repeat or drop elements."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx

from tvm_gnn_cost.importing.relax.rules import Primitive, Unsupported, positive, rule, sizes


@rule("Reshape", "Flatten", "Squeeze", "Unsqueeze", moves=True)
def reshape(node: Primitive) -> relax.Expr:
    """Reshapes."""
    return relax.op.reshape(node.tensor(0), node.out_shape())


@rule("Transpose", moves=True)
def transpose(node: Primitive) -> relax.Expr:
    """Transposes; reverses the axes by default."""
    order = node.attribute("perm")
    return relax.op.permute_dims(node.tensor(0), None if order is None else sizes(order))


@rule("Concat", moves=True)
def concat(node: Primitive) -> relax.Expr:
    """Concatenates along an axis; empty operands are skipped."""
    parts = [node.tensor(i) for i in range(len(node.node.inputs)) if 0 not in node.shape(i)]
    if len(parts) == 1:
        return parts[0]
    axis = 1 if node.version < 4 else node.attribute("axis")
    return relax.op.concat(parts, positive(axis, len(node.out_shape())))


@rule("Expand", moves=True)
def expand(node: Primitive) -> relax.Expr:
    """Broadcasts in both directions: the operand may be larger than the given shape."""
    return relax.op.broadcast_to(node.tensor(0), node.out_shape())


@rule("Tile", moves=True)
def tile(node: Primitive) -> relax.Expr:
    """Tiles the operand, as a broadcast.

    LLVM 22 miscompiles ``relax.op.tile``, which has a modulo in each index, for AVX-512.
    """
    shape = list(node.shape(0))
    if node.version < 6:
        count, axis = int(node.constant(1, "tiles")), int(node.constant(2, "axis"))
        repeats = [count if item == axis else 1 for item in range(len(shape))]
    else:
        repeats = sizes(node.constant(1, "repeats").tolist())
    return repeated(node.tensor(0), shape, repeats)


def repeated(value: relax.Expr, shape: list[int], repeats: list[int]) -> relax.Expr:
    """Tiles a value of the given shape."""
    extents = [1] * (len(repeats) - len(shape)) + shape
    counts = [1] * (len(extents) - len(repeats)) + repeats
    apart = relax.op.reshape(value, [item for size in extents for item in (1, size)])
    broadcast = relax.op.broadcast_to(apart, [item for pair in zip(counts, extents, strict=True) for item in pair])
    return relax.op.reshape(broadcast, [count * size for count, size in zip(counts, extents, strict=True)])


@rule("Slice", moves=True)
def slice_(node: Primitive) -> relax.Expr:
    """Slices, with steps that may be negative."""
    shape = node.shape(0)
    starts, ends = sizes(node.parameter("starts", 1)), sizes(node.parameter("ends", 2))
    axes = node.parameter("axes", 3)
    axes = list(range(len(starts))) if axes is None else [positive(size, len(shape)) for size in sizes(axes)]
    steps = sizes(node.constant(4, "steps").tolist()) if node.has(4) else [1] * len(starts)
    result = node.tensor(0)
    forward = []
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        places = range(shape[axis])[slice(start, end if step > 0 or end >= -shape[axis] else None, step)]
        if step > 0:
            forward.append((axis, places.start, places.stop, step))
        else:
            # TVM's slices are unreliable with negative steps.
            result = relax.op.take(result, node.const(np.array(places, np.int64)), axis, "clip")
    if not forward:
        return result
    axes, begins, stops, strides = zip(*forward, strict=True)
    return relax.op.strided_slice(result, list(axes), list(begins), list(stops), list(strides))


@rule("Split", moves=True)
def split(node: Primitive) -> list[relax.Expr]:
    """Splits along an axis."""
    axis = positive(node.attribute("axis", 0), len(node.shape(0)))
    parts = [output.shape[axis] for output in node.node.outputs]
    if not all(output.name for output in node.node.outputs):
        raise Unsupported("one of its outputs has no name")
    ends = np.cumsum(parts).tolist()
    return [
        relax.op.strided_slice(node.tensor(0), [axis], [end - size], [end])
        for size, end in zip(parts, ends, strict=True)
    ]


@rule("Trilu", moves=True)
def triangle(node: Primitive) -> relax.Expr:
    """The upper or lower triangle of matrices."""
    rows, columns = node.shape(0)[-2:]
    k = int(node.constant(1, "k")) if node.has(1) else 0
    kept = np.tri(rows, columns, k - 1 if node.attribute("upper") else k, dtype=bool)
    kept = ~kept if node.attribute("upper") else kept
    x, dtype = node.tensor(0), str(node.value(0).dtype)
    return relax.op.where(node.const(kept), x, node.const(np.zeros((), np.float32), dtype))


@rule("Pad", moves=True)
def pad(node: Primitive) -> relax.Expr:
    """Pads or crops each axis: with a constant, or by reflection, repetition or wrapping."""
    shape, mode = node.shape(0), node.attribute("mode")
    rank = len(shape)
    given = node.parameter("pads", 1)
    if given is None:
        given = node.attribute("paddings")
    amounts = sizes(given)
    axes = list(range(rank))
    if node.has(3):
        axes = [positive(size, rank) for size in sizes(node.constant(3, "axes").tolist())]
    before, behind = [0] * rank, [0] * rank
    for number, axis in enumerate(axes):
        before[axis], behind[axis] = amounts[number], amounts[number + len(axes)]
    x = node.tensor(0)
    if mode != "constant":
        return _padded_by_index(node, x, mode, before, behind)
    dtype = str(node.value(0).dtype)
    if node.has(2) and not node.is_constant(2):
        value: Any = relax.op.reshape(node.tensor(2), [])
    else:
        number = node.constant(2, "value").reshape(-1)[0] if node.has(2) else node.attribute("value", 0.0)
        value = node.const(np.asarray(number).reshape(()), dtype)
    out = node.out_shape()

    def padded(x: te.Tensor, filled: te.Tensor) -> te.Tensor:
        def element(*indices: Any) -> Any:
            inside = [
                condition
                for index, low, high, size in zip(indices, before, behind, shape, strict=True)
                for condition in (
                    *([index >= low] if low > 0 else []),
                    *([index < low + size] if high > 0 else []),
                )
            ]
            shifted = [index - low for index, low in zip(indices, before, strict=True)]
            return tirx.if_then_else(tirx.all(*inside), x[tuple(shifted)], filled[()]) if inside else x[tuple(shifted)]

        return te.compute(out, element, name="pad")

    return node.te(padded, x, value, name="pad")


def _padded_by_index(node: Primitive, x: relax.Expr, mode: str, before: list[int], behind: list[int]) -> relax.Expr:
    """Pads with elements of the operand, axis by axis."""
    for axis, size in enumerate(node.shape(0)):
        if not before[axis] and not behind[axis]:
            continue
        places = np.arange(-before[axis], size + behind[axis])
        if mode == "edge":
            places = places.clip(0, size - 1)
        elif mode == "wrap":
            places = places % size
        elif mode == "reflect":
            period = max(1, 2 * (size - 1))
            places = places % period
            places = np.minimum(places, period - places) if size > 1 else places * 0
        else:
            raise Unsupported(f"mode '{mode}' is unknown")
        x = relax.op.take(x, node.const(places.astype(np.int64)), axis, "clip")
    return x


@rule("DepthToSpace", "SpaceToDepth", moves=True)
def blocks(node: Primitive) -> relax.Expr:
    """Moves blocks of pixels to channels, or back."""
    batch, channels, rows, columns = node.shape(0)
    size = node.attribute("blocksize")
    x = node.tensor(0)
    if node.operator == "SpaceToDepth":
        x = relax.op.reshape(x, [batch, channels, rows // size, size, columns // size, size])
        order = [0, 1, 3, 5, 2, 4] if node.attribute("mode") == "CRD" else [0, 3, 5, 1, 2, 4]
        return relax.op.reshape(relax.op.permute_dims(x, order), node.out_shape())
    if node.attribute("mode") == "CRD":
        x = relax.op.reshape(x, [batch, channels // size**2, size, size, rows, columns])
        return relax.op.reshape(relax.op.permute_dims(x, [0, 1, 4, 2, 5, 3]), node.out_shape())
    x = relax.op.reshape(x, [batch, size, size, channels // size**2, rows, columns])
    return relax.op.reshape(relax.op.permute_dims(x, [0, 3, 4, 1, 5, 2]), node.out_shape())
