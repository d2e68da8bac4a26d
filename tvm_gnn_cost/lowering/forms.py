"""Layouts of values, and how each operator computes on values in another layout.

A form is a permutation of a value's axes: (0, 2, 3, 1) of a tensor (N, C, H, W) is channels-last, (N, H, W, C).
``None`` is the form that a value has in the network. :mod:`~tvm_gnn_cost.lowering.layouts` chooses.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import tvm
from tvm import relax

Form = tuple[int, ...]

#: Ranks that have a channels-last form.
_RANKS = (3, 4, 5)


def channels_last(rank: int) -> Form:
    """The channels-last form.

    >>> channels_last(4)
    (0, 2, 3, 1)
    """
    return (0, *range(2, rank), 1)


class Emitter(Protocol):
    """Emits the values that an operator reads."""

    def at(self, value: Any, form: Form) -> Any:
        """A value in a form; a value of lower rank gets leading axes of size 1."""

    def emit(self, value: Any) -> Any:
        """Binds a call to a new variable."""


@dataclass(frozen=True)
class Step:
    """How an operator is computed on values in other forms."""

    #: The variables that it reads in another form, with that form.
    reads: tuple[tuple[Any, Form], ...]
    #: The form of the result, or of each field of a tuple.
    gives: Form | None
    emit: Callable[[Emitter], Any]
    #: The variables that it reads in their original form.
    others: tuple[Any, ...] = ()
    #: Whether the operator must be computed in this form.
    always: bool = False
    #: Whether it can be fused into the operator before it.
    elementwise: bool = False


@dataclass
class Forms:
    """What is known about the variables so far."""

    #: Variable -> its alternative form.
    given: dict[Any, Form] = field(default_factory=dict)
    #: The variables that a convolution's result reaches in that form.
    near: set[Any] = field(default_factory=set)
    #: Variable -> the expression that it is bound to.
    bound: dict[Any, Any] = field(default_factory=dict)
    #: Variable -> the expressions that read it.
    readers: dict[Any, list[Any]] = field(default_factory=dict)

    def of(self, value: Any) -> Form | None:
        """The alternative form of a value."""
        form = self.given.get(value) if isinstance(value, relax.Var) else None
        if form is None and value.ty.ndim in _RANKS:
            return channels_last(value.ty.ndim)
        return form

    def common(self, values: Sequence[Any], rank: int) -> Form | None:
        """A common form of several values, preferably that of a convolution's result."""
        known = [
            value for value in values if isinstance(value, relax.Var) and value in self.given and value.ty.ndim == rank
        ]
        known.sort(key=lambda item: item not in self.near)
        if known:
            return self.given[known[0]]
        return channels_last(rank) if rank in _RANKS else None

    def step(self, variable: Any, value: Any) -> Step | None:
        """How an expression that is bound to a variable is computed in another form; None if it cannot be."""
        if isinstance(value, relax.TupleGetItem):
            return _item(value, self)
        if not isinstance(value, relax.Call) or not isinstance(value.op, tvm.ir.Op):
            return None
        if value.op.name == "relax.permute_dims":
            return _permute(variable, value, self)
        rule = _RULES.get(value.op.name)
        return None if rule is None else rule(value, self)


def shape_of(value: Any) -> list[int] | None:
    """The shape of a tensor; None if it is not static."""
    if not isinstance(value.ty, relax.TensorType) or not isinstance(value.ty.shape, relax.ShapeExpr):
        return None
    sizes = value.ty.shape.values
    return [int(size) for size in sizes] if all(isinstance(size, tvm.tirx.IntImm) for size in sizes) else None


def kept_in_order(shape: Sequence[int], form: Form) -> bool:
    """Whether a form moves only axes of size 1, so that it is a reshape.

    >>> kept_in_order([1, 16, 1, 1], (0, 2, 3, 1)), kept_in_order([1, 16, 4, 4], (0, 2, 3, 1))
    (True, False)
    """
    order = [axis for axis in form if shape[axis] != 1]
    return order == sorted(order)


def reshaped(shape: Sequence[int], target: Sequence[int], form: Form) -> Form | None:
    """The form of the result of reshaping a value in ``form``; None if that is no permutation of the original result.

    The axes that are split or merged must be adjacent in ``form``. The result is the identity where the reshape
    gives the result in its own form.

    >>> reshaped([1, 16, 4, 4], [1, 16, 16], (0, 2, 3, 1))
    (0, 2, 1)
    >>> reshaped([1, 16, 1, 1], [1, 16], (0, 2, 3, 1))
    (0, 1)
    >>> reshaped([1, 16, 4, 4], [1, 2, 8, 4, 4], (0, 2, 3, 1))
    (0, 3, 4, 1, 2)
    >>> reshaped([1, 16, 4, 4], [4, 64], (0, 2, 3, 1)) is None
    True
    """
    groups = groups_of(shape, target)
    if groups is None:
        return None
    order = [axis for axis in form if shape[axis] != 1]
    results: list[int] = []
    while order:
        sources, targets = next(group for group in groups if order[0] in group[0])
        if order[: len(sources)] != sources:
            return None
        results, order = results + targets, order[len(sources) :]
    rank = len(target)
    if rank in _RANKS and [axis for axis in channels_last(rank) if target[axis] != 1] == results:
        # With a single row or pixel, both forms are valid.
        return channels_last(rank) if results != sorted(results) else tuple(range(rank))
    return (
        (*(axis for axis in range(rank) if target[axis] == 1), *results)
        if results != sorted(results)
        else tuple(range(rank))
    )


def groups_of(shape: Sequence[int], target: Sequence[int]) -> list[tuple[list[int], list[int]]] | None:
    """The smallest groups of axes that a reshape maps to each other, without axes of size 1."""
    if 0 in shape or 0 in target or math.prod(shape) != math.prod(target):
        return None
    sources = [axis for axis, size in enumerate(shape) if size != 1]
    targets = [axis for axis, size in enumerate(target) if size != 1]
    result = []
    while sources:
        group: tuple[list[int], list[int]] = ([sources.pop(0)], [targets.pop(0)])
        while (here := math.prod(shape[item] for item in group[0])) != (
            there := math.prod(target[item] for item in group[1])
        ):
            if here < there:
                group[0].append(sources.pop(0))
            else:
                group[1].append(targets.pop(0))
        result.append(group)
    return result


def with_attributes(call: Any, arguments: Sequence[Any], **changes: Any) -> Any:
    """A call of the same operator with other arguments and some attributes replaced."""
    attributes = call.attrs
    if changes:
        names = [item.name for item in type(attributes).__tvm_ffi_type_info__.fields]
        key = type(attributes).__tvm_ffi_type_info__.type_key
        attributes = tvm.ir.make_node(key, **({name: getattr(attributes, name) for name in names} | changes))
    return relax.Call(call.op, list(arguments), attributes)


def rewritten(mod: tvm.IRModule, mutator: Any) -> tvm.IRModule:
    """A module whose network a mutator of this module has rewritten."""
    mutator.builder_.update_func(mod.get_global_var("main"), mutator.visit_expr(mod["main"]))
    return mutator.builder_.get()


def follows_product(value: Any, binding_of: Callable[[Any], Any], known: dict[Any, bool]) -> bool:
    """Whether a value is a product or is computed by elementwise operators after one, which are fused with it.

    Args:
        value: The value.
        binding_of: Variable -> what it is bound to.
        known: The results so far, which are added to.
    """
    if not isinstance(value, relax.Var):
        return False
    if value not in known:
        call = binding_of(value)
        name = getattr(getattr(call, "op", None), "name", "").removeprefix("relax.")
        if isinstance(call, relax.Var):
            known[value] = follows_product(call, binding_of, known)
        elif name in ELEMENTWISE:
            known[value] = any(follows_product(argument, binding_of, known) for argument in call.args)
        else:
            known[value] = name in _PRODUCTS
    return known[value]


def _variables(values: Iterable[Any]) -> tuple[Any, ...]:
    return tuple(value for value in values if isinstance(value, relax.Var))


def _is_tensor(value: Any) -> bool:
    return isinstance(value.ty, relax.TensorType)


def _fields(value: Any, forms: Forms) -> list[Any] | None:
    """The fields of a literal tuple of tensors."""
    while isinstance(value, relax.Var) and value in forms.bound:
        value = forms.bound[value]
    return list(value.fields) if isinstance(value, relax.Tuple) else None


def _moved(axis: int, form: Form) -> int:
    """The position of a value's axis in a form."""
    return form.index(axis % len(form))


def _elementwise(call: Any, forms: Forms) -> Step | None:
    """Elementwise operators with broadcasting."""
    tensors = [argument for argument in call.args if _is_tensor(argument)]
    form = forms.common(tensors, call.ty.ndim) if _is_tensor(call) else None
    if form is None or shape_of(call) is None or any(shape_of(tensor) is None for tensor in tensors):
        return None

    def emit(emitter: Emitter) -> Any:
        return relax.Call(
            call.op,
            [emitter.at(argument, form) if _is_tensor(argument) else argument for argument in call.args],
            call.attrs,
        )

    read = tuple((variable, form) for variable in _variables(tensors))
    others = _variables(argument for argument in call.args if not _is_tensor(argument))
    return Step(read, form, emit, others, elementwise=True)


def _single(
    call: Any,
    forms: Forms,
    arguments: Callable[[Form], Sequence[Any]] | None = None,
    attributes: Callable[[Form], dict[str, Any]] | None = None,
    gives: Callable[[Form], Form | None] = lambda form: form,
    elementwise: bool = False,
) -> Step | None:
    """Operators whose first operand takes another form while the others keep theirs.

    Args:
        call: The call.
        forms: What is known so far.
        arguments: The other arguments for a form; unchanged by default.
        attributes: The attributes that change for a form.
        gives: The form of the result; the identity for its own.
        elementwise: Whether it can be fused into the operator before it.
    """
    value = call.args[0]
    if not isinstance(value, relax.Var) or shape_of(value) is None:
        return None
    form = forms.of(value)
    given = None if form is None else gives(form)
    if form is None or given is None:
        return None
    rest = call.args[1:] if arguments is None else arguments(form)
    changes = {} if attributes is None else attributes(form)

    def emit(emitter: Emitter) -> Any:
        return with_attributes(call, [emitter.at(value, form), *rest], **changes)

    identity = given == tuple(range(len(given)))
    return Step(((value, form),), None if identity else given, emit, _variables(rest), elementwise=elementwise)


def _along_axis(call: Any, forms: Forms) -> Step | None:
    """Operators with an attribute ``axis`` that keep the number of axes."""
    if call.attrs.axis is None:
        return None
    return _single(call, forms, attributes=lambda form: {"axis": _moved(int(call.attrs.axis), form)})


def _in_layout(name: str) -> Callable[[Any, Forms], Step | None]:
    """Operators with an attribute for the layout of their operand: pooling and resizing."""

    def rule(call: Any, forms: Forms) -> Step | None:
        layout = str(getattr(call.attrs, name))
        last = channels_last(len(layout))
        if layout[:2] != "NC" or str(getattr(call.attrs, "out_layout", layout)) != layout:
            return None
        new = "".join(layout[axis] for axis in last)
        changes = {key: new for key in (name, "out_layout") if hasattr(call.attrs, key)}
        return _single(call, forms, attributes=lambda _: changes, gives=lambda form: form if form == last else None)

    return rule


def _convolution(call: Any, _: Forms) -> Step | None:
    """Convolutions take NHWC activations and HWIO weights."""
    layouts = [str(getattr(call.attrs, name)) for name in ("data_layout", "kernel_layout", "out_layout")]
    rank = len(layouts[0])
    spatial = "DHW"[5 - rank :]
    if layouts != ["NC" + spatial, "OI" + spatial, "NC" + spatial]:
        return None
    if any(shape_of(argument) is None for argument in (call, *call.args)):
        return None
    last, weight_form = channels_last(rank), (*range(2, rank), 1, 0)
    changes = {"data_layout": f"N{spatial}C", "kernel_layout": spatial + "IO", "out_layout": f"N{spatial}C"}

    def emit(emitter: Emitter) -> Any:
        data, weights = call.args
        return with_attributes(call, [emitter.at(data, last), emitter.at(weights, weight_form)], **changes)

    read = tuple(
        (argument, form)
        for argument, form in zip(call.args, (last, weight_form), strict=True)
        if isinstance(argument, relax.Var)
    )
    return Step(read, last, emit, always=True)


def _reduction(call: Any, forms: Forms) -> Step | None:
    """Reductions over axes, including argmax."""
    value, axes = call.args[0], call.attrs.axis
    if not _is_tensor(value) or value.ty.ndim < 1:
        return None
    single = call.op.name in ("relax.argmax", "relax.argmin")
    if axes is None:
        # Flat indices depend on the order of the elements.
        if single:
            return None
        over = list(range(value.ty.ndim))
    else:
        over = [int(axis) % value.ty.ndim for axis in ([axes] if single else axes)]

    def attributes(form: Form) -> dict[str, Any]:
        moved = sorted(form.index(axis) for axis in over)
        return {} if axes is None else {"axis": moved[0] if single else moved}

    def gives(form: Form) -> Form:
        return form if call.attrs.keepdims else _without(form, over)

    return _single(call, forms, attributes=attributes, gives=gives)


def _without(form: Form, dropped: Iterable[int]) -> Form:
    """A form after some axes are removed.

    >>> _without((0, 2, 3, 1), [2]), _without((0, 2, 3, 1), [2, 3])
    ((0, 2, 1), (0, 1))
    """
    kept = [axis for axis in form if axis not in dropped]
    return tuple(sorted(kept).index(axis) for axis in kept)


def _concat(call: Any, forms: Forms) -> Step | None:
    """Concatenation along an axis, and stacking along a new first axis."""
    fields = _fields(call.args[0], forms)
    if not fields or call.attrs.axis is None or any(shape_of(item) is None for item in fields):
        return None
    rank = fields[0].ty.ndim
    form = forms.common(fields, rank)
    if form is None:
        return None
    stacked = call.op.name == "relax.stack"
    axis = int(call.attrs.axis) % (rank + stacked)
    if stacked and axis != 0:
        return None

    def emit(emitter: Emitter) -> Any:
        moved = relax.Tuple([emitter.at(field, form) for field in fields])
        return with_attributes(call, [moved], **({} if stacked else {"axis": form.index(axis)}))

    gives = (0, *(item + 1 for item in form)) if stacked else form
    return Step(tuple((variable, form) for variable in _variables(fields)), gives, emit)


def _item(item: Any, forms: Forms) -> Step | None:
    """A field of a tuple that an operator returns."""
    source = item.tuple_value
    form = forms.given.get(source) if isinstance(source, relax.Var) else None
    if form is None:
        return None
    return Step(((source, form),), form, lambda emitter: relax.TupleGetItem(emitter.at(source, form), item.index))


def _pad(call: Any, forms: Forms) -> Step | None:
    width = [int(item) for item in call.attrs.pad_width]

    def attributes(form: Form) -> dict[str, Any]:
        return {"pad_width": [item for axis in form for item in width[2 * axis : 2 * axis + 2]]}

    return _single(call, forms, attributes=attributes)


def _strided_slice(call: Any, forms: Forms) -> Step | None:
    axes = call.args[1]
    if not isinstance(axes, relax.Tuple) or not all(isinstance(axis, tvm.tirx.IntImm) for axis in axes.fields):
        return None

    def arguments(form: Form) -> list[Any]:
        moved = [relax.prim_value(_moved(int(axis), form)) for axis in axes.fields]
        return [relax.Tuple(moved), *call.args[2:]]

    return _single(call, forms, arguments)


def _take(call: Any, forms: Forms) -> Step | None:
    indices, axis = call.args[1], call.attrs.axis
    if axis is None or not _is_tensor(indices) or indices.ty.ndim not in (0, 1):
        return None
    axis = int(axis) % call.args[0].ty.ndim

    def gives(form: Form) -> Form:
        return form if indices.ty.ndim else _without(form, [axis])

    return _single(call, forms, attributes=lambda form: {"axis": form.index(axis)}, gives=gives)


def _norm(call: Any, forms: Forms) -> Step | None:
    """Normalizations over given axes, whose weights are along one axis. TVM lowers no other RMS norm."""
    names = [name for name in ("axes", "channel_axis") if hasattr(call.attrs, name)]
    over = [int(axis) for axis in call.attrs.axes]
    if "channel_axis" not in names and len(over) > 1:
        return None

    def attributes(form: Form) -> dict[str, Any]:
        changes: dict[str, Any] = {"axes": sorted(_moved(axis, form) for axis in over)}
        if "channel_axis" in names:
            changes["channel_axis"] = _moved(int(call.attrs.channel_axis), form)
        return changes

    return _single(call, forms, attributes=attributes)


def _tile(call: Any, forms: Forms) -> Step | None:
    repeats = [int(repeat) for repeat in call.attrs.repeats]
    if len(repeats) != call.args[0].ty.ndim:
        return None
    return _single(call, forms, attributes=lambda form: {"repeats": [repeats[axis] for axis in form]})


def _broadcast_to(call: Any, forms: Forms) -> Step | None:
    value, shape = call.args[0], shape_of(call)
    if shape is None or not isinstance(value, relax.Var) or shape_of(value) is None or not value.ty.ndim:
        return None
    form = forms.common([value], len(shape))
    if form is None:
        return None
    moved = [shape[axis] for axis in form]
    return Step(((value, form),), form, lambda emitter: relax.op.broadcast_to(emitter.at(value, form), moved))


def _reshape(call: Any, forms: Forms) -> Step | None:
    """Reshape, squeeze, expand_dims and flatten."""
    shape, target = shape_of(call.args[0]), shape_of(call)
    if shape is None or target is None:
        return None
    value = call.args[0]
    form = forms.of(value)
    given = None if form is None else reshaped(shape, target, form)
    if form is None or given is None or not isinstance(value, relax.Var):
        return None
    moved = [target[axis] for axis in given]
    return Step(
        ((value, form),),
        None if given == tuple(range(len(given))) else given,
        lambda emitter: relax.op.reshape(emitter.at(value, form), moved),
        elementwise=True,
    )


def _permute(variable: Any, call: Any, forms: Forms) -> Step | None:
    """A transpose in the network: most often its result is a form of its operand, and nothing is computed."""
    value, rank = call.args[0], call.ty.ndim
    if not isinstance(value, relax.Var) or shape_of(value) is None:
        return None
    axes = tuple(range(rank))[::-1] if call.attrs.axes is None else tuple(int(axis) % rank for axis in call.attrs.axes)
    given = forms.given.get(value) if value in forms.near else None
    if given is not None and given != axes:
        between = _between_reshapes(variable, forms)
        if between is not None:
            moved = [given.index(axes[axis]) for axis in between]
            return Step(
                ((value, given),), between, lambda emitter: relax.op.permute_dims(emitter.at(value, given), moved)
            )
    inverse = tuple(axes.index(axis) for axis in range(rank))
    if given != axes and rank in _RANKS and inverse == channels_last(rank):
        # The last axis becomes the channels, which are last in that form.
        return Step((), inverse, lambda _: value, (value,), always=True)
    return Step(((value, axes),), None, lambda emitter: emitter.at(value, axes), always=True)


def _between_reshapes(variable: Any, forms: Forms) -> Form | None:
    """The form in which a variable is reshaped to a channels-last tensor, as in a channel shuffle."""
    shape = shape_of(variable)
    if shape is None or len(shape) not in range(4, 8):
        return None
    for reader in forms.readers.get(variable, []):
        target = shape_of(reader) if _is_call(reader, "relax.reshape") else None
        if target is None or len(target) not in _RANKS:
            continue
        for count in range(1, len(shape) - 1):
            form = (0, *range(count + 1, len(shape)), *range(1, count + 1))
            if reshaped(shape, target, form) == channels_last(len(target)):
                return form
    return None


def _is_call(value: Any, name: str) -> bool:
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") == name


#: Elementwise operators.
ELEMENTWISE = (
    *("abs", "acos", "acosh", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp", "floor", "log"),
    *("negative", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt", "square", "tan", "tanh", "trunc"),
    *("astype", "clip", "full_like", "ones_like", "zeros_like", "isfinite", "isinf", "isnan", "where"),
    *("nn.relu", "nn.gelu", "nn.gelu_tanh", "nn.silu", "nn.selu", "nn.leakyrelu", "nn.softplus"),
    *("add", "subtract", "multiply", "divide", "floor_divide", "mod", "floor_mod", "power", "maximum", "minimum"),
    *("atan2", "log_add_exp", "equal", "not_equal", "greater", "greater_equal", "less", "less_equal"),
    *("logical_and", "logical_not", "logical_or", "logical_xor"),
    *("bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"),
)

#: Operators with which the elementwise ones after them are fused; other modules write ``call_tir`` for such alone.
_PRODUCTS = ("matmul", "call_tir", *(f"nn.conv{n}d{kind}" for n in (1, 2, 3) for kind in ("", "_transpose")))

_RULES: dict[str, Callable[[Any, Forms], Step | None]] = {
    f"relax.{name}": rule
    for names, rule in (
        (ELEMENTWISE, _elementwise),
        ([f"nn.conv{n}d" for n in (1, 2, 3)], _convolution),
        ([f"nn.{kind}_pool{n}d" for kind in ("max", "avg", "adaptive_avg") for n in (1, 2, 3)], _in_layout("layout")),
        (["image.resize2d", "image.resize3d"], _in_layout("layout")),
        (["sum", "mean", "max", "min", "prod", "variance", "std", "argmax", "argmin"], _reduction),
        (["nn.softmax", "nn.log_softmax", "cumsum", "cumprod", "flip", "repeat", "nn.prelu"], _along_axis),
        (["quantize", "dequantize", "split"], _along_axis),
        (["concat", "stack"], _concat),
        (["nn.layer_norm", "nn.group_norm", "nn.instance_norm"], _norm),
        (["nn.pad"], _pad),
        (["strided_slice"], _strided_slice),
        (["take"], _take),
        (["tile"], _tile),
        (["broadcast_to"], _broadcast_to),
        (["reshape", "squeeze", "expand_dims", "flatten", "nn.batch_flatten"], _reshape),
    )
    for name in names
}
