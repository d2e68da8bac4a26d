"""Gathers and scatters that never access memory outside of their tensors, whatever their indices are.

TVM's do not check indices, and some do not support negative ones. Tasks are measured with random indices.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from tvm import relax, te, tirx, topi


def _inside(index: Any, size: Any) -> Any:
    """An index clamped to an axis of the given size."""
    index = index.astype("int64")
    return tirx.max(tirx.min(tirx.Select(index < 0, index + size, index), size - 1), 0)


def _take(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """``take`` that wraps negative indices; the fast mode of importers does not check."""
    mode = "wrap" if str(call.attrs.mode) == "fast" else str(call.attrs.mode)
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    return builder.call_te(topi.take, *call.args, axis, mode=mode)


def _gather_elements(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    axis = int(call.attrs.axis) % call.args[0].ty.ndim

    def gather(data: te.Tensor, indices: te.Tensor) -> te.Tensor:
        def value(*at: Any) -> Any:
            return data[(*at[:axis], _inside(indices(*at), data.shape[axis]), *at[axis + 1 :])]

        return te.compute(indices.shape, value, name="gather")

    return builder.call_te(gather, *call.args, primfunc_name_hint="gather")


def _gather_nd(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    batch = int(call.attrs.batch_dims)

    def gather_nd(data: te.Tensor, indices: te.Tensor) -> te.Tensor:
        rank, count = len(indices.shape) - 1, int(indices.shape[-1])

        def value(*at: Any) -> Any:
            result = (_inside(indices(*at[:rank], m), data.shape[batch + m]) for m in range(count))
            return data[(*at[:batch], *result, *at[rank:])]

        return te.compute([*indices.shape[:-1], *data.shape[batch + count :]], value, name="gather_nd")

    return builder.call_te(gather_nd, *call.args, primfunc_name_hint="gather_nd")


def _index_tensor(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    def index_tensor(data: te.Tensor, *indices: te.Tensor) -> te.Tensor:
        shape = _broadcast(indices)

        def value(*at: Any) -> Any:
            result = (
                _inside(_read(index, at[: len(shape)]), size) for index, size in zip(indices, data.shape, strict=False)
            )
            return data[(*result, *at[len(shape) :])]

        return te.compute([*shape, *data.shape[len(indices) :]], value, name="index_tensor")

    return builder.call_te(
        index_tensor, call.args[0], *_fields(builder, call.args[1]), primfunc_name_hint="index_tensor"
    )


def _index_put(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """Sequentially: TVM's loop has a data race, and reads as many values as there are indices."""
    mode = "add" if call.attrs.accumulate else "update"

    def index_put(data: te.Tensor, values: te.Tensor, *indices: te.Tensor) -> te.Tensor:
        shape = _broadcast(indices)
        places = te.compute(
            [len(indices), *shape],
            lambda which, *at: _chosen(
                which, [_inside(_read(index, at), size) for index, size in zip(indices, data.shape, strict=False)]
            ),
            name="places",
        )
        values = topi.broadcast_to(values, [*shape, *data.shape[len(indices) :]])
        return topi.scatter_nd(data, places, values, mode)

    fields = _fields(builder, call.args[1])
    return builder.call_te(index_put, call.args[0], call.args[2], *fields, primfunc_name_hint="index_put")


def _scatter_nd(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    def scatter_nd(data: te.Tensor, indices: te.Tensor, updates: te.Tensor) -> te.Tensor:
        *shape, count = indices.shape
        places = te.compute(
            [count, *shape],
            lambda which, *at: _chosen(which, [_inside(indices(*at, m), data.shape[m]) for m in range(int(count))]),
            name="places",
        )
        return topi.scatter_nd(data, places, updates, str(call.attrs.reduction))

    return builder.call_te(scatter_nd, *call.args, primfunc_name_hint="scatter_nd")


def _scatter_elements(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    """TVM's loop writes to wrong positions where the indices are smaller than the data along another axis."""
    axis, reduction = int(call.attrs.axis) % call.args[0].ty.ndim, str(call.attrs.reduction)

    def scatter_elements(data: te.Tensor, indices: te.Tensor, updates: te.Tensor) -> te.Tensor:
        def place(*at: Any) -> Any:
            return _inside(indices(*at), data.shape[axis])

        rank = range(len(data.shape))
        if all(int(data.shape[n]) == int(indices.shape[n]) for n in rank if n != axis) or reduction == "mean":
            return topi.scatter_elements(
                data, te.compute(indices.shape, place, name="places"), updates, axis, reduction
            )
        places = te.compute(
            [len(rank), *indices.shape],
            lambda which, *at: _chosen(which, [place(*at) if n == axis else at[n].astype("int64") for n in rank]),
            name="places",
        )
        return topi.scatter_nd(data, places, updates, reduction)

    return builder.call_te(scatter_elements, *call.args, primfunc_name_hint="scatter_elements")


def _reverse_sequence(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    along, batch = int(call.attrs.seq_axis), int(call.attrs.batch_axis)

    def reverse_sequence(data: te.Tensor, lengths: te.Tensor) -> te.Tensor:
        known = te.compute(
            lengths.shape, lambda at: tirx.min(lengths[at], tirx.const(int(data.shape[along]), lengths.dtype))
        )
        return topi.reverse_sequence(data, known, along, batch)

    return builder.call_te(reverse_sequence, *call.args, primfunc_name_hint="reverse_sequence")


def _chosen(which: Any, values: Sequence[Any]) -> Any:
    """Selects one of several values by its number."""
    numbered = list(enumerate(values))
    return functools.reduce(lambda rest, item: tirx.Select(which == item[0], item[1], rest), numbered[:-1], values[-1])


def _broadcast(tensors: Sequence[te.Tensor]) -> list[int]:
    """The broadcast shape of several tensors."""
    shapes = [[int(size) for size in tensor.shape] for tensor in tensors]
    rank = max(map(len, shapes))
    columns = zip(*([1] * (rank - len(shape)) + shape for shape in shapes), strict=True)
    return [next((size for size in column if size != 1), 1) for column in columns]


def _read(tensor: te.Tensor, at: Sequence[Any]) -> Any:
    """An element of a broadcast tensor."""
    aligned = at[len(at) - len(tensor.shape) :]
    return tensor(*(0 if int(size) == 1 else item for item, size in zip(aligned, tensor.shape, strict=True)))


def _fields(builder: relax.BlockBuilder, value: relax.Expr) -> list[relax.Expr]:
    """The fields of a tuple."""
    if isinstance(value, relax.Tuple):
        return list(value.fields)
    if not isinstance(value.ty, relax.TupleType):
        return [value]
    return [builder.emit(relax.TupleGetItem(value, number)) for number in range(len(value.ty.fields))]


#: Operator -> its lowering, with bounds on all indices. Negative indices count from the end; an index that is out of
#: bounds reads an arbitrary element of the tensor.
LOWERED: dict[str, Callable[[relax.BlockBuilder, relax.Call], relax.Expr]] = {
    "relax.take": _take,
    "relax.gather_elements": _gather_elements,
    "relax.gather_nd": _gather_nd,
    "relax.index_tensor": _index_tensor,
    "relax.index_put": _index_put,
    "relax.scatter_nd": _scatter_nd,
    "relax.scatter_elements": _scatter_elements,
    "relax.reverse_sequence": _reverse_sequence,
}
