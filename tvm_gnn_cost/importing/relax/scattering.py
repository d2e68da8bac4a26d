"""Scatter operators; updates are applied in order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as builder

from tvm_gnn_cost.importing.relax.indexing import held, inside, linear_elements, linear_rows
from tvm_gnn_cost.importing.relax.rules import Primitive, Unsupported, positive, rule

#: Maximum number of updates (of a single element for constant indices) that are expanded to selects.
_FEW = 16

#: Reduction -> its function and its neutral element.
_REDUCTIONS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[str], Any]]] = {
    "add": (lambda value, update: value + update, lambda dtype: tirx.const(0, dtype)),
    "mul": (lambda value, update: value * update, lambda dtype: tirx.const(1, dtype)),
    "min": (tirx.min, tirx.max_value),
    "max": (tirx.max, tirx.min_value),
}


def _updated(kind: str, is_hit: Any, value: Any, update: Any, dtype: str) -> Any:
    """Applies an update under a condition; operands are read once, so that chains do not grow exponentially."""
    if kind == "none":
        return tirx.if_then_else(is_hit, update, value)
    combine, neutral = _REDUCTIONS[kind]
    return combine(value, tirx.if_then_else(is_hit, update, neutral(dtype)))


@rule("Scatter", "ScatterElements")
def scatter_elements(node: Primitive) -> relax.Expr:
    """Scatters one element per index."""
    shape, count = node.shape(0), node.shape(1)
    axis = positive(node.attribute("axis"), len(shape))
    if node.is_constant(1):
        rows = linear_elements(inside(node.constant(1, "indices"), shape[axis]), shape, axis).reshape(-1)
        return _scattered(node, rows, prod(count), (prod(shape),))

    def numbers(indices: te.Tensor) -> te.Tensor:
        def number(flat: Any) -> Any:
            at = _unflat(flat, count)
            place = held(indices[tuple(at)], shape[axis])
            return _linear([place if item == axis else at[item] for item in range(len(shape))], shape)

        return te.compute((prod(count),), number, name="places")

    return _scattered(node, numbers, prod(count), (prod(shape),))


@rule("ScatterND")
def scatter_nd(node: Primitive) -> relax.Expr:
    """Scatters slices by indices on several axes: into rows of the tensor with these axes flattened."""
    shape, count, depth = node.shape(0), node.shape(1)[:-1], node.shape(1)[-1]
    table = (prod(shape[:depth]), prod(shape[depth:]))
    if node.is_constant(1):
        rows = linear_rows(node.constant(1, "indices"), shape[:depth], 0).reshape(-1)
        return _scattered(node, rows, prod(count), table)

    def numbers(indices: te.Tensor) -> te.Tensor:
        def number(flat: Any) -> Any:
            at = _unflat(flat, count)
            return _linear([held(indices[(*at, k)], shape[k]) for k in range(depth)], shape[:depth])

        return te.compute((prod(count),), number, name="places")

    return _scattered(node, numbers, prod(count), table)


def _unflat(index: Any, shape: Sequence[int]) -> list[Any]:
    """Unravels a flat index."""
    results = []
    for axis in range(len(shape)):
        place = tirx.floordiv(index, prod(shape[axis + 1 :]))
        results.append(tirx.floormod(place, shape[axis]) if axis else place)
    return results


def _linear(places: Sequence[Any], shape: Sequence[int]) -> Any:
    """Ravels a multi-index."""
    result: Any = tirx.const(0, "int64")
    for axis, place in enumerate(places):
        result = result + place.astype("int64") * tirx.const(prod(shape[axis + 1 :]), "int64")
    return result


def _scattered(
    node: Primitive, rows: npt.NDArray[Any] | Callable[[te.Tensor], te.Tensor], count: int, table: tuple[int, ...]
) -> relax.Expr:
    """Applies ``count`` updates to rows of a table, in order.

    Args:
        node: The operator.
        rows: The row of each update, in bounds: constant, or a function of the indices.
        count: Number of updates.
        table: Shape of the table: rows, and elements per row if there are several.
    """
    kind = node.attribute("reduction") or "none"
    if kind not in ("none", *_REDUCTIONS):
        raise Unsupported(f"the reduction '{kind}' is unknown")
    if not count or 0 in node.out_shape():
        return node.tensor(0)
    data = relax.op.reshape(node.tensor(0), table)
    updates = relax.op.reshape(node.tensor(2), [count, *table[1:]])
    write = _compared if count <= _FEW else _written
    if isinstance(rows, np.ndarray):
        sources = _sources(rows, table[0], kind)
        if sources.shape[1] <= _FEW:
            output = node.te(_chosen, data, node.const(sources), updates, kind, name="scatter")
        else:
            output = node.te(write, data, node.const(rows), updates, kind, name="scatter")
    else:

        def whole(data: te.Tensor, indices: te.Tensor, updates: te.Tensor) -> te.Tensor:
            return write(data, rows(indices), updates, kind)

        output = node.te(whole, data, node.tensor(1), updates, name="scatter")
    return relax.op.reshape(output, node.out_shape())


def _sources(rows: npt.NDArray[Any], count: int, kind: str) -> npt.NDArray[Any]:
    """The updates of each row, in order, padded with -1; only the last one if updates replace."""
    if kind == "none":
        last = np.full((count, 1), -1, np.int64)
        last[rows, 0] = np.arange(rows.size)
        return last
    times = np.zeros(count, np.int64)
    ranks = np.zeros(rows.size, np.int64)
    for number, row in enumerate(rows.tolist()):
        ranks[number] = times[row]
        times[row] += 1
    sources = np.full((count, int(times.max())), -1, np.int64)
    sources[rows, ranks] = np.arange(rows.size)
    return sources


def _chosen(data: te.Tensor, sources: te.Tensor, updates: te.Tensor, kind: str) -> te.Tensor:
    """Each row with its updates, which are known."""

    def element(row: Any, *rest: Any) -> Any:
        result = data[(row, *rest)]
        for number in range(int(sources.shape[1])):
            source = sources[row, number]
            update = updates[(tirx.max(source, tirx.const(0, "int64")), *rest)]
            result = _updated(kind, source >= 0, result, update, str(data.dtype))
        return result

    return te.compute(data.shape, element, name="scatter")


def _compared(data: te.Tensor, rows: te.Tensor, updates: te.Tensor, kind: str) -> te.Tensor:
    """Each row with all updates that match it."""

    def element(row: Any, *rest: Any) -> Any:
        result = data[(row, *rest)]
        for number in range(int(updates.shape[0])):
            hit = rows[number].astype("int64") == row.astype("int64")
            result = _updated(kind, hit, result, updates[(number, *rest)], str(data.dtype))
        return result

    return te.compute(data.shape, element, name="scatter")


def _written(data: te.Tensor, rows: te.Tensor, updates: te.Tensor, kind: str) -> te.Tensor:
    """A copy of the table to which the updates are applied sequentially."""
    elements, width = prod(map(int, data.shape)), prod(map(int, data.shape[1:]))

    def program(inputs: Any, outputs: Any) -> Any:
        old, places, new, out = (builder.buffer_proxy(operand) for operand in (*inputs, outputs[0]))
        with IRBuilder() as copying, builder.serial(0, elements) as i:
            out[i] = old[i]
        with IRBuilder() as writing, builder.serial(0, int(updates.shape[0])) as number, builder.serial(0, width) as k:
            place, update = places[number] * width + k, new[number * width + k]
            out[place] = update if kind == "none" else _REDUCTIONS[kind][0](out[place], update)
        return tirx.SeqStmt([copying.get(), writing.get()])

    return te.extern([data.shape], [data, rows, updates], program, dtype=str(data.dtype), name="scatter", tag="scatter")


@rule("TensorScatter", moves=True)
def tensor_scatter(node: Primitive) -> relax.Expr:
    """Appends entries to a cache, as a ring buffer."""
    shape, update = node.shape(0), node.shape(1)
    axis = positive(node.attribute("axis"), len(shape))
    is_circular = node.attribute("mode") == "circular"
    size, count = shape[axis], update[axis]
    starts = node.tensor(2) if node.has(2) else node.const(np.zeros(shape[0], np.int64))

    def written(cache: te.Tensor, new: te.Tensor, starts: te.Tensor) -> te.Tensor:
        def element(*i: Any) -> Any:
            offset = i[axis].astype("int64") - starts[i[0]].astype("int64")
            if is_circular:
                offset = tirx.floormod(offset, tirx.const(size, "int64"))
            held_offset = tirx.max(tirx.min(offset, tirx.const(count - 1, "int64")), tirx.const(0, "int64"))
            fresh = new[(*i[:axis], held_offset, *i[axis + 1 :])]
            return tirx.if_then_else(tirx.all(offset >= 0, offset < count), fresh, cache[i])

        return te.compute(shape, element, name="tensor_scatter")

    return node.te(written, node.tensor(0), node.tensor(1), starts, name="tensor_scatter")
