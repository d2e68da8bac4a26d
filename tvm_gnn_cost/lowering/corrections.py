"""Rewrites what TVM's importers write and its later passes get wrong or make slow."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.dpl import TupleGetItemPattern, is_op, rewrite_call, wildcard


def correct(mod: tvm.IRModule) -> tvm.IRModule:
    """The module in a form that lowers to what the network means, and reads no memory outside of its tensors."""
    main = mod["main"]
    for operator, operands, rewritten in (
        ("relax.take", 2, _take),
        ("relax.squeeze", 1, _squeeze),
        ("relax.nn.layer_norm", 3, _layer_norm),
        ("relax.shape_to_tensor", 1, _shape_to_tensor),
        ("relax.clip", 3, _clip),
        ("relax.nn.pixel_shuffle", 1, _pixel_shuffle),
    ):
        main = _rewrite(main, operator, operands, rewritten)
    main = _without_dropout(main)
    mod = mod.clone()
    mod.update_func(mod.get_global_var("main"), main)
    return mod


def _take(call: relax.Call) -> relax.Expr:
    """In the mode that wraps negative indices; the fast one, which importers write, checks none."""
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    return relax.op.take(*call.args, axis, mode="wrap")


def _squeeze(call: relax.Call) -> relax.Expr:
    """With axes that count from the start: at others ``ConvertLayout`` crashes."""
    if call.attrs.axis is None:
        return call
    return relax.op.squeeze(call.args[0], [int(axis) % call.args[0].ty.ndim for axis in call.attrs.axis])


def _layer_norm(call: relax.Call) -> relax.Expr:
    """Over one axis: of several, ``ConvertLayout`` moves those of the values and leaves those of the weights."""
    value, *weights = call.args
    count = len(call.attrs.axes)
    if count == 1:
        return call
    shape = [int(size) for size in value.ty.shape]
    rows = relax.op.reshape(value, [*shape[:-count], -1])
    flat = [relax.op.reshape(weight, [-1]) for weight in weights]
    attributes = {name: getattr(call.attrs, name) for name in ("epsilon", "center", "scale")}
    return relax.op.reshape(relax.op.nn.layer_norm(rows, *flat, axes=-1, **attributes), shape)


def _shape_to_tensor(call: relax.Call) -> relax.Expr:
    """The sizes as a constant, so that what is computed from them is folded too."""
    sizes = call.args[0].ty.values
    if sizes is None or not all(isinstance(size, tvm.tirx.IntImm) for size in sizes):
        return call
    return relax.const(np.array([int(size) for size in sizes]), "int64")


def _pixel_shuffle(call: relax.Call) -> relax.Expr:
    """In its parts: TVM cannot lower it."""
    *batch, channels, height, width = (int(size) for size in call.args[0].ty.shape)
    factor = int(call.attrs.upscale_factor)
    first, size = len(batch), channels // factor**2
    parts = relax.op.reshape(call.args[0], [*batch, size, factor, factor, height, width])
    order = [*range(first + 1), first + 3, first + 1, first + 4, first + 2]
    return relax.op.reshape(relax.op.permute_dims(parts, order), [*batch, size, height * factor, width * factor])


def _clip(call: relax.Call) -> relax.Expr:
    """As minimum and maximum, as others write it: a network has the same tasks whoever exported it.

    Integers stay: a bound may be one that no floating point number is.
    """
    value, low, high = call.args
    dtype = str(call.ty.dtype)
    if "float" not in dtype:
        return call
    return relax.op.minimum(
        relax.op.maximum(value, relax.const(_number(low), dtype)), relax.const(_number(high), dtype)
    )


def _number(expression: Any) -> float:
    """The number in a PrimValue."""
    return float(getattr(expression, "value", expression))


def _without_dropout(function: relax.Function) -> relax.Function:
    """Dropout gives what it takes; a tuple of that and a mask would be written out."""
    value = wildcard()
    pattern = TupleGetItemPattern(is_op("relax.nn.dropout")(value), 0)
    return rewrite_call(pattern, lambda _, matched: matched[value], function)


def _rewrite(
    function: relax.Function, operator: str, operands: int, rewritten: Callable[[Any], relax.Expr]
) -> relax.Function:
    """Replaces every call of an operator."""
    pattern = is_op(operator)(*(wildcard() for _ in range(operands)))

    def replaced(_: relax.Expr, matched: Mapping[Any, Any]) -> relax.Expr:
        return rewritten(matched[pattern])

    return rewrite_call(pattern, replaced, function)
