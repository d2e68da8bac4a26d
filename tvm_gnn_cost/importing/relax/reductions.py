"""Reductions over axes, and softmax."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx

from tvm_gnn_cost.importing.relax.rules import Primitive, positive, rule, sizes

_REDUCTIONS = {
    "ReduceMax": relax.op.max,
    "ReduceMean": relax.op.mean,
    "ReduceMin": relax.op.min,
    "ReduceProd": relax.op.prod,
    "ReduceSum": relax.op.sum,
}


@rule(*_REDUCTIONS)
def reduction(node: Primitive) -> relax.Expr:
    """A reduction over the given axes; over all by default, unless an attribute says otherwise."""
    axes = axes_of(node)
    if axes == []:
        return node.tensor(0)
    x, dtype, keep = node.tensor(0), node.dtype(0), bool(node.attribute("keepdims"))
    reduce = _REDUCTIONS[node.operator]
    if dtype == "bool":
        return relax.op.astype(reduce(relax.op.astype(x, "int8"), axes, keep), "bool")
    if node.operator in ("ReduceMax", "ReduceMin") and np.dtype(dtype).kind == "f":
        return node.te(_extreme, x, axes, node.out_shape(), node.operator == "ReduceMax")
    if node.operator == "ReduceMean" and np.dtype(dtype).kind in "iu":
        return relax.op.astype(reduce(relax.op.astype(x, "float64"), axes, keep), dtype)
    return reduce(x, axes, keep)


def _extreme(x: te.Tensor, axes: list[int] | None, out: tuple[int, ...], is_largest: bool) -> te.Tensor:
    """The maximum or minimum of floats over axes. Unlike TVM's reduction, handles infinities and propagates NaN."""
    rank = len(x.shape)
    over = list(range(rank)) if axes is None else axes
    reduced = {axis: te.reduce_axis((0, x.shape[axis]), f"k{axis}") for axis in over}
    kept = [axis for axis in range(rank) if axis not in reduced]

    def choose(a: Any, b: Any) -> Any:
        return tirx.Select(tirx.any(a > b if is_largest else a < b, tirx.isnan(a)), a, b)

    def first(of: str) -> Any:
        return tirx.const(float("-inf") if is_largest else float("inf"), of)

    reducer = te.comm_reducer(choose, first, name="extreme")

    def element(*indices: Any) -> Any:
        kept_indices = indices if len(out) < rank else [indices[axis] for axis in kept]
        place = dict(zip(kept, kept_indices, strict=True)) | reduced
        return reducer(x[tuple(place[axis] for axis in range(rank))], axis=list(reduced.values()))

    return te.compute(out, element, name="extreme")


def axes_of(node: Primitive) -> list[int] | None:
    """The nonnegative axes of a reduction; None for all, an empty list for none."""
    given = node.parameter("axes", 1)
    rank = len(node.shape(0))
    if given is None or given == []:
        none: list[int] | None = [] if node.attribute("noop_with_empty_axes") else None
        return none
    return sorted({positive(size, rank) for size in sizes(given)})


@rule("Softmax", "LogSoftmax")
def softmax(node: Primitive) -> relax.Expr:
    """Softmax over one axis; before opset 13, over all axes from ``axis`` on."""
    x, shape = node.tensor(0), node.shape(0)
    write = relax.op.nn.softmax if node.operator == "Softmax" else relax.op.nn.log_softmax
    axis = positive(node.attribute("axis"), len(shape))
    if node.version >= 13 or axis == len(shape) - 1:
        return write(x, axis)
    rows = int(np.prod(shape[:axis], dtype=np.int64))
    flat = relax.op.reshape(x, [rows, int(np.prod(shape[axis:], dtype=np.int64))])
    return relax.op.reshape(write(flat, 1), shape)


@rule("Hardmax")
def hardmax(node: Primitive) -> relax.Expr:
    """One-hot vector of the first maximum along an axis."""
    shape = node.shape(0)
    axis = positive(node.attribute("axis"), len(shape))
    flat = shape if node.version >= 13 else (int(np.prod(shape[:axis])), int(np.prod(shape[axis:])))
    axis = axis if node.version >= 13 else 1
    best = relax.op.argmax(relax.op.reshape(node.tensor(0), flat), axis, keepdims=True)
    places = np.arange(flat[axis]).reshape([-1 if item == axis else 1 for item in range(len(flat))])
    hit = relax.op.equal(best, node.const(places, "int64"))
    return relax.op.reshape(relax.op.astype(hit, node.dtype(0)), shape)


@rule("ArgMax", "ArgMin", moves=True)
def arg_extreme(node: Primitive) -> relax.Expr:
    """Index of the first or last maximum or minimum along an axis."""
    shape = node.shape(0)
    axis = positive(node.attribute("axis"), len(shape))
    find = relax.op.argmax if node.operator == "ArgMax" else relax.op.argmin
    x: Any = node.tensor(0)
    if str(node.value(0).dtype) in ("float16", "bfloat16"):
        x = relax.op.astype(x, "float32")
    keep = bool(node.attribute("keepdims"))
    if not node.attribute("select_last_index"):
        return relax.op.astype(find(x, axis, keep), "int64")
    result = find(relax.op.flip(x, axis), axis, keep)
    return relax.op.subtract(node.const(shape[axis] - 1, "int64"), relax.op.astype(result, "int64"))
