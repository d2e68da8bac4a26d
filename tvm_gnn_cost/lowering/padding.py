"""Pads the weights of matrix products whose number of columns is no multiple of a vector."""

from __future__ import annotations

import numpy as np
import tvm
from tvm import relax, te
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_gnn_cost.lowering.blocks import FUSABLE, covered
from tvm_gnn_cost.lowering.constants import constant, constant_of
from tvm_gnn_cost.lowering.vectors import WIDEST

#: The number of columns of a tile without waste, preferably: three vectors.
_TILE = 3 * WIDEST

#: Largest share of columns to add, where a vector of half the size divides them and where none does.
_WASTE, MORE_WASTE = 0.125, 0.5


def pad_weights(mod: tvm.IRModule) -> tvm.IRModule:
    """Pads constant weights of matrix products with columns of zeros, whose results the product drops.

    Vocabularies and numbers of classes are seldom multiples of a vector: 50,257, 1,000, 6,625.

    Args:
        mod: A module in Relax's operators; without such a product, it is returned unchanged.
    """
    padding = _Padding(mod)
    for var, function in mod.functions_items():
        if isinstance(function, relax.Function):
            padding.builder_.update_func(var, padding.visit_expr(function))
    return padding.builder_.get() if padding.padded else mod


def padded_columns(columns: int) -> int:
    """The number of columns to compute for a number of columns.

    >>> padded_columns(50257), padded_columns(1000), padded_columns(768), padded_columns(34), padded_columns(10)
    (50304, 1008, 768, 48, 10)
    """
    if columns % WIDEST == 0:
        return columns
    for multiple, waste in ((_TILE, _WASTE / 4), (WIDEST, _WASTE if columns % (WIDEST // 2) == 0 else MORE_WASTE)):
        target = covered(columns, multiple)
        if target <= columns * (1 + waste):
            return target
    return columns


@mutator
class _Padding(PyExprMutator):  # type: ignore[misc]
    """Replaces matrix products."""

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.padded = False

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Visits a call; Relax calls this."""
        call = self.visit_expr_post_order(call)
        if not isinstance(call.op, tvm.ir.Op) or call.op.name != "relax.matmul":
            return call
        weights = constant_of(call.args[1], self.lookup_binding)
        if weights is None or weights.ty.ndim != 2 or call.args[0].ty.ndim < 2:
            return call
        dtype = str(weights.ty.dtype)
        if {str(value.ty.dtype) for value in (call, call.args[0])} != {dtype}:
            return call
        values = weights.value.numpy()
        columns = values.shape[1]
        target = padded_columns(columns)
        if target == columns:
            return call
        self.padded = True
        return self.builder_.call_te(
            _product,
            call.args[0],
            constant(np.pad(values, [(0, 0), (0, target - columns)]), dtype),
            columns,
            primfunc_name_hint="matmul_padded",
            primfunc_attrs={"op_pattern": FUSABLE},
        )


def _product(left: te.Tensor, weights: te.Tensor, columns: int) -> te.Tensor:
    """The first columns of a product, of shape (..., rows, columns)."""
    *rows, inner = left.shape
    k = te.reduce_axis((0, inner), "k")
    product = te.compute(
        (*rows, weights.shape[1]),
        lambda *at: te.sum(left[(*at[:-1], k)] * weights[k, at[-1]], axis=k),
        name="product",
    )
    return te.compute((*rows, columns), lambda *at: product(*at), name="columns")
