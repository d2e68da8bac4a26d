"""Top-k, cumulative sums and cumulative products."""

from __future__ import annotations

from math import isqrt, prod
from typing import Any

import numpy as np
from tvm import relax, te, tirx, topi

from tvm_gnn_cost.importing.relax.indexing import empty
from tvm_gnn_cost.importing.relax.rules import Primitive, positive, rule

#: Maximum size of an axis that is sorted by comparing all pairs: branch-free, and tuned like any reduction.
_PAIRS = 128

#: Maximum size of an axis whose prefix sums are computed independently; longer ones are split into parts.
_SHORT = 32


@rule("TopK")
def top_k(node: Primitive) -> list[relax.Expr]:
    """The sorted largest or smallest elements of an axis and their indices; equal elements keep their order."""
    shape, out = node.shape(0), node.out_shape()
    if 0 in out:
        return [empty(node), node.const(np.zeros(out, np.int64))]
    rank = len(shape)
    axis = positive(node.attribute("axis", -1), rank)
    is_largest = bool(node.attribute("largest", 1))
    order = [*(item for item in range(rank) if item != axis), axis]
    moved = [shape[item] for item in order]
    x = node.tensor(0) if axis == rank - 1 else relax.op.permute_dims(node.tensor(0), order)
    flat = relax.op.reshape(x, [prod(moved[:-1]), moved[-1]])
    count = out[axis]
    if moved[-1] <= _PAIRS:
        places = node.te(_places, flat, count, is_largest, name="top_k")
        places = node.emit(places)
        values = node.te(_at_places, flat, places, name="top_k_values")
    else:
        result = node.emit(node.te(_sorted, flat, count, is_largest, name="top_k"))
        values, places = relax.TupleGetItem(result, 0), relax.TupleGetItem(result, 1)
    shaped = [relax.op.reshape(item, [*moved[:-1], count]) for item in (values, places)]
    if axis == rank - 1:
        return shaped
    return [relax.op.permute_dims(item, [order.index(axis) for axis in range(rank)]) for item in shaped]


def _places(x: te.Tensor, count: int, is_largest: bool) -> te.Tensor:
    """The index of each of the first elements, by the number of elements before it."""
    rows, size = (int(size) for size in x.shape)
    other = te.reduce_axis((0, size), "other")

    def is_before(a: Any, i: Any, b: Any, j: Any) -> Any:
        better = a > b if is_largest else a < b
        return tirx.any(better, tirx.all(a == b, i < j))

    ranks = te.compute(
        (rows, size),
        lambda row, i: te.sum(is_before(x[row, other], other, x[row, i], i).astype("int32"), axis=other),
        name="ranks",
    )
    place = te.reduce_axis((0, size), "place")
    return te.compute(
        (rows, count),
        lambda row, k: te.max(
            tirx.Select(ranks[row, place] == k.astype("int32"), place.astype("int64"), tirx.const(0, "int64")),
            axis=place,
        ),
        name="places",
    )


def _at_places(x: te.Tensor, places: te.Tensor) -> te.Tensor:
    return te.compute(places.shape, lambda row, k: x[row, places[row, k]], name="values")


def _sorted(x: te.Tensor, count: int, is_largest: bool) -> list[te.Tensor]:
    """The first elements and their indices, sorted by TVM's runtime."""
    values, places = topi.topk(x, count, -1, "both", not is_largest, "int64")
    return [values, places]


@rule("CumSum", "CumProd")
def running(node: Primitive) -> relax.Expr:
    """Inclusive or exclusive cumulative sums or products, from either end."""
    shape = node.shape(0)
    if 0 in shape:
        return node.tensor(0)
    axis = positive(int(node.constant(1, "axis").reshape(-1)[0]), len(shape))
    before, behind = prod(shape[:axis]), prod(shape[axis + 1 :])
    x = relax.op.reshape(node.tensor(0), [before, shape[axis], behind])
    is_sum, is_backwards = node.operator == "CumSum", bool(node.attribute("reverse"))
    output = node.te(_running, x, is_sum, bool(node.attribute("exclusive")), is_backwards, name=node.operator.lower())
    return relax.op.reshape(output, shape)


def _running(x: te.Tensor, is_sum: bool, is_exclusive: bool, is_backwards: bool) -> te.Tensor:
    """Cumulative sums or products along the second of three axes; long axes are split recursively."""
    before, size, behind = (int(size) for size in x.shape)
    dtype = str(x.dtype)
    neutral = tirx.const(0 if is_sum else 1, dtype)
    reduce = te.sum if is_sum else _product
    width = size if size <= _SHORT else isqrt(size - 1) + 1
    parts = -(-size // width)

    def counts(k: Any, i: Any) -> Any:
        if is_backwards:
            return k > i if is_exclusive else k >= i
        return k < i if is_exclusive else k <= i

    k = te.reduce_axis((0, width), "k")
    if parts == 1:
        return te.compute(
            (before, size, behind),
            lambda b, i, c: reduce(tirx.if_then_else(counts(k, i), x[b, k, c], neutral), axis=k),
            name="running",
        )

    def padded(b: Any, place: Any, c: Any) -> Any:
        held = tirx.min(place, size - 1)
        return tirx.if_then_else(place < size, x[b, held, c], neutral)

    scanned = te.compute(
        (before, parts * width, behind),
        lambda b, i, c: reduce(
            tirx.if_then_else(counts(k, i % width), padded(b, i // width * width + k, c), neutral), axis=k
        ),
        name="within",
    )
    k2 = te.reduce_axis((0, width), "k")
    totals = te.compute(
        (before, parts, behind), lambda b, p, c: reduce(padded(b, p * width + k2, c), axis=k2), name="totals"
    )
    offsets = _running(totals, is_sum, True, is_backwards)

    def combined(b: Any, i: Any, c: Any) -> Any:
        offset = offsets[b, i // width, c]
        return scanned[b, i, c] + offset if is_sum else scanned[b, i, c] * offset

    return te.compute((before, size, behind), combined, name="running")


_product = te.comm_reducer(lambda x, y: x * y, lambda dtype: tirx.const(1, dtype), name="product")
