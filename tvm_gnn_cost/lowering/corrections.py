"""Rewrites operators that TVM's later passes cannot lower, or lower to slow code."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.dpl import TupleGetItemPattern, is_op, rewrite_call, wildcard

from tvm_gnn_cost.importing.relax.movement import repeated


def correct(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with these operators rewritten."""
    main = mod["main"]
    for operator, operands, rewritten in (
        ("relax.shape_to_tensor", 1, _shape_to_tensor),
        ("relax.nn.pixel_shuffle", 1, _pixel_shuffle),
        ("relax.tile", 1, _tile),
    ):
        main = _rewrite(main, operator, operands, rewritten)
    main = _without_dropout(main)
    mod = mod.clone()
    mod.update_func(mod.get_global_var("main"), main)
    return mod


def _shape_to_tensor(call: relax.Call) -> relax.Expr:
    """The shape as a constant, so that what depends on it is folded."""
    sizes = call.args[0].ty.values
    if sizes is None or not all(isinstance(size, tvm.tirx.IntImm) for size in sizes):
        return call
    return relax.const(np.array([int(size) for size in sizes]), "int64")


def _pixel_shuffle(call: relax.Call) -> relax.Expr:
    """As reshape, transpose and reshape: TVM cannot lower it."""
    *batch, channels, height, width = (int(size) for size in call.args[0].ty.shape)
    factor = int(call.attrs.upscale_factor)
    first, size = len(batch), channels // factor**2
    parts = relax.op.reshape(call.args[0], [*batch, size, factor, factor, height, width])
    order = [*range(first + 1), first + 3, first + 1, first + 4, first + 2]
    return relax.op.reshape(relax.op.permute_dims(parts, order), [*batch, size, height * factor, width * factor])


def _tile(call: relax.Call) -> relax.Expr:
    """As a broadcast: LLVM 22 miscompiles TVM's lowering, which has a modulo in each index, for AVX-512."""
    shape, repeats = call.args[0].ty.shape, [int(repeat) for repeat in call.attrs.repeats]
    if shape is None or not all(isinstance(size, tvm.tirx.IntImm) for size in shape):
        return call
    return repeated(call.args[0], [int(size) for size in shape], repeats)


def _without_dropout(function: relax.Function) -> relax.Function:
    """Removes dropout, which is the identity in inference; its mask would be computed and stored."""
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
