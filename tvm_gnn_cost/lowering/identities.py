"""Removes operators whose result is their operand."""

from __future__ import annotations

from typing import Any

import tvm
from tvm import relax
from tvm.ir.expr import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_gnn_cost.lowering.forms import rewritten, shape_of

#: Operators that rearrange nothing if the shape stays the same.
_MOVES = ("broadcast_to", "reshape", "squeeze", "expand_dims", "flatten", "astype")

#: Operator -> the constant that it has no effect with, and the positions in which that may be.
_NEUTRAL = {"add": (0, (0, 1)), "subtract": (0, (1,)), "multiply": (1, (0, 1)), "divide": (1, (1,))}


def remove_identities(mod: tvm.IRModule) -> tvm.IRModule:
    """Removes additions of zero, multiplications by one, and casts, reshapes and broadcasts to the same type.

    -0 + 0 is 0 in floating point, and -0 here; the other results are the same.
    """
    mod = relax.transform.CanonicalizeBindings()(rewritten(mod, _Removing(mod)))
    return relax.transform.DeadCodeElimination(["main"])(mod)


@mutator
class _Removing(PyExprMutator):  # type: ignore[misc]
    """Replaces calls by their operands."""

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Visits a call; Relax calls this."""
        call = self.visit_expr_post_order(call)
        name = getattr(call.op, "name", "").removeprefix("relax.")
        if name in _MOVES and _is_same(call.args[0], call):
            return call.args[0]
        neutral, places = _NEUTRAL.get(name, (0, ()))
        for place in places:
            value, other = call.args[place], call.args[1 - place]
            if isinstance(value, GenericConst) and _is_same(other, call) and (value.value.numpy() == neutral).all():
                return other
        return call


def _is_same(value: Any, call: relax.Call) -> bool:
    """Whether a call has the shape and type of a value."""
    if not isinstance(value.ty, relax.TensorType) or value.ty.dtype != call.ty.dtype:
        return False
    shape = shape_of(value)
    return shape is not None and shape == shape_of(call)
