"""Keeps small products apart from the operators that spread their results over large tensors."""

from __future__ import annotations

import math
from typing import Any

import tvm
from tvm import relax, topi
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_gnn_cost.lowering.blocks import INJECTIVE
from tvm_gnn_cost.lowering.forms import follows_product, rewritten, shape_of

_OPERATORS = ("add", "subtract", "multiply", "divide")

#: How many times as many elements the result has at least.
_SPREAD = 8


def separate_broadcasts(mod: tvm.IRModule) -> tvm.IRModule:
    """Keeps an operator that spreads a product's result over a larger tensor from being fused with it.

    Squeeze-and-excitation multiplies an image by a product of a single row. Fused, all of it would be scheduled as the
    epilogue of a product with a thousandth of the elements.
    """
    return rewritten(mod, _Separating(mod))


@mutator
class _Separating(PyExprMutator):  # type: ignore[misc]
    """Lowers the operators."""

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.fused: dict[Any, bool] = {}

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Visits a call; Relax calls this."""
        call = self.visit_expr_post_order(call)
        name, shape = getattr(call.op, "name", "").removeprefix("relax."), shape_of(call)
        if name not in _OPERATORS or shape is None or not any(self._is_spread(value, shape) for value in call.args):
            return call
        return self.builder_.call_te(
            getattr(topi, name), *call.args, primfunc_name_hint=name, primfunc_attrs={"op_pattern": INJECTIVE}
        )

    def _is_spread(self, value: Any, shape: list[int]) -> bool:
        size = shape_of(value)
        return (
            size is not None
            and math.prod(shape) >= _SPREAD * math.prod(size)
            and follows_product(value, self.lookup_binding, self.fused)
        )
