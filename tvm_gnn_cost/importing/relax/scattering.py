"""Operators that write updates into a tensor where indices say, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax, te, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as builder

from tvm_gnn_cost.importing.relax.indexing import _linear_elements, _linear_rows, _row_numbers, _unflat, held, inside
from tvm_gnn_cost.importing.relax.rules import Primitive, Unsupported, positive, rule

#: So many updates of unknown places, or so many of one known place, are written as choices between values.
_FEW = 16

#: How a value and an update become one, and the update that changes nothing.
_REDUCTIONS: dict[str, tuple[Callable[[Any, Any], Any], Callable[[str], Any]]] = {
    "add": (lambda value, update: value + update, lambda dtype: tirx.const(0, dtype)),
    "mul": (lambda value, update: value * update, lambda dtype: tirx.const(1, dtype)),
    "min": (tirx.min, tirx.max_value),
    "max": (tirx.max, tirx.min_value),
}


def _updated(kind: str, is_hit: Any, value: Any, update: Any, dtype: str) -> Any:
    """A value with an update if it is hit; each is read once, so that long chains stay short."""
    if kind == "none":
        return tirx.if_then_else(is_hit, update, value)
    combine, neutral = _REDUCTIONS[kind]
    return combine(value, tirx.if_then_else(is_hit, update, neutral(dtype)))


@rule("Scatter", "ScatterElements")
def scatter_elements(node: Primitive) -> relax.Expr:
    """One element is written for each index, at its own place on all other axes."""
    shape, count = node.shape(0), node.shape(1)
    axis = positive(node.attribute("axis"), len(shape))
    if node.is_constant(1):
        indices = inside(node.constant(1, "indices"), shape[axis])
        rows: Any = _linear_elements(indices, shape, axis).reshape(-1)
    elif 0 in count:
        rows = np.zeros(0, np.int64)
    else:
        rows = _element_numbers(node, shape, axis)
    return _scattered(node, rows, prod(count), (prod(shape),))


@rule("ScatterND")
def scatter_nd(node: Primitive) -> relax.Expr:
    """Slices are written at places that are given on several axes: into rows of the table that these make when flat."""
    shape, count, depth = node.shape(0), node.shape(1)[:-1], node.shape(1)[-1]
    if node.is_constant(1):
        rows: Any = _linear_rows(node.constant(1, "indices"), shape[:depth], 0).reshape(-1)
    elif 0 in count:
        rows = np.zeros(0, np.int64)
    else:
        rows = _row_numbers(node, shape[:depth], 0)
    return _scattered(node, rows, prod(count), (prod(shape[:depth]), prod(shape[depth:])))


def _element_numbers(node: Primitive, shape: tuple[int, ...], axis: int) -> relax.Expr:
    """The places of elements in the flat tensor, in one list."""
    count = node.shape(1)
    strides = [prod(shape[one + 1 :]) for one in range(len(shape))]

    def numbers(indices: te.Tensor) -> te.Tensor:
        def number(flat: Any) -> Any:
            own = _unflat(flat, count)
            found: Any = tirx.const(0, "int64")
            for one, stride in enumerate(strides):
                place = held(indices[tuple(own)], shape[axis]) if one == axis else own[one].astype("int64")
                found = found + place * tirx.const(stride, "int64")
            return found

        return te.compute((prod(count),), number, name="places")

    return node.te(numbers, node.tensor(1), name="places")


def _scattered(node: Primitive, rows: Any, count: int, table: tuple[int, ...]) -> relax.Expr:
    """A table with ``count`` updates of its rows, in their order.

    Args:
        node: The operator.
        rows: An array or an expression: the row of each update, in the range.
        count: How many updates there are.
        table: The sizes of the table: rows, and elements in each if it is not one.
    """
    kind = node.attribute("reduction") or "none"
    if kind not in ("none", *_REDUCTIONS):
        raise Unsupported(f"the reduction '{kind}' is unknown")
    if not count or 0 in node.out_shape():
        return node.tensor(0)
    data = relax.op.reshape(node.tensor(0), table)
    updates = relax.op.reshape(node.tensor(2), [count, *table[1:]])
    if isinstance(rows, np.ndarray):
        sources = _sources(rows, table[0], kind)
        if sources.shape[1] <= _FEW:
            found = node.te(_chosen, data, node.const(sources), updates, kind, name="scatter")
            return relax.op.reshape(found, node.out_shape())
        rows = node.const(rows)
    write = _compared if count <= _FEW else _written
    return relax.op.reshape(node.te(write, data, rows, updates, kind, name="scatter"), node.out_shape())


def _sources(rows: npt.NDArray[Any], count: int, kind: str) -> npt.NDArray[Any]:
    """The numbers of the updates of each row, in their order; -1 behind them. If they replace, only the last one."""
    if kind == "none":
        last = np.full((count, 1), -1, np.int64)
        last[rows, 0] = np.arange(rows.size)
        return last
    times = np.zeros(count, np.int64)
    ranks = np.zeros(rows.size, np.int64)
    for number, row in enumerate(rows.tolist()):
        ranks[number] = times[row]
        times[row] += 1
    found = np.full((count, int(times.max())), -1, np.int64)
    found[rows, ranks] = np.arange(rows.size)
    return found


def _chosen(data: te.Tensor, sources: te.Tensor, updates: te.Tensor, kind: str) -> te.Tensor:
    """Each row with the updates that are known to be its own."""

    def element(row: Any, *rest: Any) -> Any:
        found = data[(row, *rest)]
        for number in range(int(sources.shape[1])):
            source = sources[row, number]
            update = updates[(tirx.max(source, tirx.const(0, "int64")), *rest)]
            found = _updated(kind, source >= 0, found, update, str(data.dtype))
        return found

    return te.compute(data.shape, element, name="scatter")


def _compared(data: te.Tensor, rows: te.Tensor, updates: te.Tensor, kind: str) -> te.Tensor:
    """Each row with every update whose place it is."""

    def element(row: Any, *rest: Any) -> Any:
        found = data[(row, *rest)]
        for number in range(int(updates.shape[0])):
            hit = rows[number].astype("int64") == row.astype("int64")
            found = _updated(kind, hit, found, updates[(number, *rest)], str(data.dtype))
        return found

    return te.compute(data.shape, element, name="scatter")


def _written(data: te.Tensor, rows: te.Tensor, updates: te.Tensor, kind: str) -> te.Tensor:
    """A copy of the table, into which one update after the other is written."""
    elements, width = prod(map(int, data.shape)), prod(map(int, data.shape[1:]))

    def program(inputs: Any, outputs: Any) -> Any:
        old, places, new, out = (builder.buffer_proxy(one) for one in (*inputs, outputs[0]))
        with IRBuilder() as copying, builder.serial(0, elements) as i:
            out[i] = old[i]
        with IRBuilder() as writing, builder.serial(0, int(updates.shape[0])) as number, builder.serial(0, width) as k:
            place, update = places[number] * width + k, new[number * width + k]
            out[place] = update if kind == "none" else _REDUCTIONS[kind][0](out[place], update)
        return tirx.SeqStmt([copying.get(), writing.get()])

    return te.extern([data.shape], [data, rows, updates], program, dtype=str(data.dtype), name="scatter", tag="scatter")


@rule("TensorScatter", moves=True)
def tensor_scatter(node: Primitive) -> relax.Expr:
    """A cache with new entries behind those that are there, or from the start again where it is full."""
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
