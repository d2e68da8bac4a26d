"""Values that are only rearrangements of others: chains of reshapes, transposes, slices and broadcasts as strides.

Each axis is a list of factors, so that a reshape can merge axes that are not adjacent in memory, as TVM's and PyTorch's
strided views cannot: the heads of grouped-query attention are (key heads, queries of each), of strides (n, 0).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import relax
from tvm.ir.expr import GenericConst

from tvm_gnn_cost.lowering.forms import shape_of

#: The extent and stride of a part of an axis; the last part varies fastest. There are no parts of extent 1.
Factor = tuple[int, int]
Axis = tuple[Factor, ...]


@dataclass(frozen=True)
class View:
    """A value as accesses to the elements of another.

    >>> view = whole(None, [64, 3, 4, 8]).permuted([1, 2, 0, 3]).sliced(0, 1, 2).reshaped([4, 64, 8])
    >>> view.axes, view.offset
    ((((4, 8),), ((64, 96),), ((8, 1),)), 32)
    """

    #: A variable or constant.
    source: Any
    axes: tuple[Axis, ...]
    #: Of the first element, in elements of the source.
    offset: int = 0
    #: What the elements are multiplied by.
    scale: float = 1.0

    @property
    def shape(self) -> list[int]:
        """The shape of the value."""
        return [extent_of(axis) for axis in self.axes]

    def is_whole(self) -> bool:
        """Whether it has the source's elements, all and in order."""
        size = math.prod(shape_of(self.source) or ())
        return math.prod(self.shape) == size and _merged(sum(self.axes, ())) == _merged(_axis(size, 1))

    def is_rearranged(self) -> bool:
        """Whether it has each of the source's elements once."""
        is_once = all(stride for axis in self.axes for _, stride in axis)
        return is_once and math.prod(self.shape) == math.prod(shape_of(self.source) or ())

    def permuted(self, order: Sequence[int]) -> View:
        """Its axes in another order."""
        return replace(self, axes=tuple(self.axes[axis] for axis in order))

    def reshaped(self, shape: Sequence[int]) -> View | None:
        """A reshape; None if a factor is split unevenly."""
        left = list(sum(self.axes, ()))
        axes: list[Axis] = []
        for size in reversed(shape):
            axis: list[Factor] = []
            while size > 1 and left:
                extent, stride = left.pop()
                if size % extent == 0:
                    axis.insert(0, (extent, stride))
                    size //= extent
                elif extent % size == 0:
                    axis.insert(0, (size, stride))
                    left.append((extent // size, stride * size))
                    size = 1
                else:
                    return None
            axes.insert(0, _merged(tuple(axis)))
        return replace(self, axes=tuple(axes))

    def sliced(self, number: int, begin: int, end: int) -> View | None:
        """A range of an axis; None if it cuts a factor other than the first."""
        (extent, stride), *inner = self.axes[number] or ((1, 0),)
        block = extent_of(inner)
        if begin % block or end % block or not 0 <= begin < end <= extent * block:
            return None
        axis = (*_axis((end - begin) // block, stride), *inner)
        axes = (*self.axes[:number], axis, *self.axes[number + 1 :])
        return replace(self, axes=axes, offset=self.offset + begin // block * stride)

    def broadcast(self, shape: Sequence[int]) -> View:
        """A broadcast to a shape."""
        axes = [()] * (len(shape) - len(self.axes)) + list(self.axes)
        return replace(self, axes=tuple(axis or _axis(size, 0) for axis, size in zip(axes, shape, strict=True)))

    def grid(self) -> Grid | None:
        """A shape of the source in which each factor is an index; None if there is none."""
        factors = sorted((factor for factor in set(sum(self.axes, ())) if factor[1]), key=lambda item: -item[1])
        outer, rest = math.prod(shape_of(self.source) or ()), self.offset
        sizes, starts, places = [], [], dict[Factor, int]()
        for extent, stride in [*factors, *([] if factors and factors[-1][1] == 1 else [(1, 1)])]:
            if outer % stride:
                return None
            sizes.append(outer // stride)
            starts.append(rest // stride)
            if starts[-1] + extent > sizes[-1]:
                return None
            places[extent, stride] = len(places)
            outer, rest = stride, rest % stride
        shape = shape_of(self.source) or []
        at = [axis for axis, size in enumerate(shape) if size != 1]
        if [shape[axis] for axis in at] == [size for size in sizes if size != 1] and len(at) == len(sizes):
            # The source's own shape.
            starts = [starts[at.index(axis)] if axis in at else 0 for axis in range(len(shape))]
            return Grid(tuple(shape), tuple(starts), {factor: at[place] for factor, place in places.items()})
        return Grid(tuple(sizes), tuple(starts), places)


@dataclass(frozen=True)
class Grid:
    """The indices of a view in its source."""

    #: The shape to which the source is reshaped.
    sizes: tuple[int, ...]
    #: The first index along each of its axes.
    starts: tuple[int, ...]
    #: Factor -> the axis that it is.
    places: dict[Factor, int]

    def indices(self, factors: Sequence[Factor], values: Sequence[Any]) -> list[Any]:
        """The index of an element, from the index of each factor."""
        result: list[Any] = list(self.starts)
        for factor, value in zip(factors, values, strict=True):
            if factor in self.places:
                place = self.places[factor]
                result[place] = value + self.starts[place] if self.starts[place] else value
        return result


def whole(source: Any, shape: Sequence[int]) -> View:
    """A value as itself."""
    strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    return View(source, tuple(_axis(size, stride) for size, stride in zip(shape, strides, strict=True)))


def refined(left: Axis, right: Axis) -> tuple[Axis, Axis] | None:
    """Two axes of the same extent with the same extents of their factors; None if there are none.

    >>> refined(((8, 4),), ((2, 4), (4, 0)))
    (((2, 16), (4, 4)), ((2, 4), (4, 0)))
    """
    rests, results = [list(left), list(right)], (list[Factor](), list[Factor]())
    while all(rests):
        ends = [rest.pop() for rest in rests]
        size = min(extent for extent, _ in ends)
        for (extent, stride), rest, result in zip(ends, rests, results, strict=True):
            if extent % size:
                return None
            result.insert(0, (size, stride))
            rest.extend(_axis(extent // size, stride * size))
    return None if any(rests) else (tuple(results[0]), tuple(results[1]))


def extent_of(axis: Sequence[Factor]) -> int:
    """The number of indices of an axis."""
    return math.prod(extent for extent, _ in axis)


def view_of(value: Any, binding_of: Callable[[Any], Any], scaled: bool = False) -> View | None:
    """A value as a view of the value that it is a rearrangement of; None if its shape is not static.

    Args:
        value: A variable or constant.
        binding_of: The expression that a variable is bound to; None for a parameter.
        scaled: Whether a view may multiply by a scalar.
    """
    shape = shape_of(value)
    if shape is None or 0 in shape:
        return None
    call = binding_of(value) if isinstance(value, relax.Var) else None
    if isinstance(call, relax.Var):
        return view_of(call, binding_of, scaled)
    moved = _moved(call, shape, binding_of, scaled)
    return whole(value, shape) if moved is None or moved.grid() is None else moved


def _moved(call: Any, shape: Sequence[int], binding_of: Callable[[Any], Any], scaled: bool) -> View | None:
    if isinstance(call, relax.TupleGetItem):
        return _part(call, shape, binding_of, scaled)
    name = getattr(call.op, "name", "").removeprefix("relax.") if isinstance(call, relax.Call) else ""
    if scaled and name in ("multiply", "divide"):
        return _scaled(call, shape, binding_of)
    operand = view_of(call.args[0], binding_of, scaled) if name in MOVES else None
    return None if operand is None else MOVES[name](operand, call, shape)


def _scaled(call: Any, shape: Sequence[int], binding_of: Callable[[Any], Any]) -> View | None:
    """A product of a value and a scalar that is neither zero nor infinite."""
    for number, factor in enumerate(call.args):
        value = call.args[1 - number]
        if isinstance(factor, GenericConst) and not sum(size > 1 for size in factor.value.shape):
            scalar = float(factor.value.numpy().item())
            scale = scalar if call.op.name == "relax.multiply" else 1 / scalar if number and scalar else math.nan
            operand = view_of(value, binding_of, True) if shape_of(value) == list(shape) else None
            if operand is not None and scale and math.isfinite(scale):
                return replace(operand, scale=operand.scale * scale)
    return None


def _part(item: Any, shape: Sequence[int], binding_of: Callable[[Any], Any], scaled: bool) -> View | None:
    """A field of a split."""
    split = binding_of(item.tuple_value) if isinstance(item.tuple_value, relax.Var) else item.tuple_value
    if not isinstance(split, relax.Call) or getattr(split.op, "name", "") != "relax.split":
        return None
    axis = int(split.attrs.axis) % len(shape)
    begin = sum(int(field.shape[axis]) for field in list(split.ty.fields)[: item.index])
    operand = view_of(split.args[0], binding_of, scaled)
    return None if operand is None else operand.sliced(axis, begin, begin + shape[axis])


def _permute(operand: View, call: Any, _: Sequence[int]) -> View:
    rank = len(operand.axes)
    return operand.permuted(range(rank)[::-1] if call.attrs.axes is None else [int(i) % rank for i in call.attrs.axes])


def _slice(operand: View, call: Any, shape: Sequence[int]) -> View | None:
    fields = [[item.value for item in part.fields if isinstance(item, tvm.tirx.IntImm)] for part in call.args[1:]]
    axes, begins, *_ = fields
    if any(len(part) != len(axes) for part in fields) or any(step != 1 for part in fields[3:] for step in part):
        return None
    result: View | None = operand
    for axis, begin in zip(axes, begins, strict=True):
        first = max(0, begin + operand.shape[axis]) if begin < 0 else begin
        result = None if result is None else result.sliced(axis % len(shape), first, first + shape[axis])
    return result


#: Operator -> the view that it makes of its operand's; None if it is no view.
MOVES: dict[str, Callable[[View, Any, Sequence[int]], View | None]] = {
    **{name: lambda view, _, shape: view.reshaped(shape) for name in ("reshape", "squeeze", "expand_dims", "flatten")},
    "permute_dims": _permute,
    "strided_slice": _slice,
    "broadcast_to": lambda view, _, shape: view.broadcast(shape),
}


def _axis(extent: int, stride: int) -> Axis:
    return () if extent == 1 else ((extent, stride),)


def _merged(axis: Axis) -> Axis:
    """Adjacent factors as one where that is the same."""
    result: list[Factor] = []
    for extent, stride in axis:
        if result and result[-1][1] == extent * stride:
            result[-1] = (result[-1][0] * extent, stride)
        else:
            result.append((extent, stride))
    return tuple(result)
