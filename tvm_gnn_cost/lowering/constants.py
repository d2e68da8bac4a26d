"""Rearranges constants now: TVM's ``FoldConstant`` compiles and runs a function for each of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax
from tvm.ir.expr import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator


def rearrange_constants(mod: tvm.IRModule) -> tvm.IRModule:
    """Replaces transposes and reshapes of constants by constants."""
    rearranging = _Rearranging(mod)
    rearranging.builder_.update_func(mod.get_global_var("main"), rearranging.visit_expr(mod["main"]))
    return relax.transform.DeadCodeElimination()(rearranging.builder_.get())


def constant(values: npt.NDArray[Any], dtype: str) -> GenericConst:
    """A constant of Relax."""
    return relax.const(np.ascontiguousarray(values).reshape(values.shape), dtype)


@mutator
class _Rearranging(PyExprMutator):  # type: ignore[misc]
    """Replaces the calls."""

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Visits a call; Relax calls this."""
        call = self.visit_expr_post_order(call)
        name = getattr(call.op, "name", "")
        if name not in ("relax.permute_dims", "relax.reshape"):
            return call
        source = call.args[0]
        bound = self.lookup_binding(source) if isinstance(source, relax.Var) else source
        if not isinstance(bound, GenericConst) or str(call.ty.dtype) == "bfloat16":
            return call
        values = bound.value.numpy()
        if name == "relax.permute_dims":
            axes = call.attrs.axes
            values = values.transpose(None if axes is None else [int(one) for one in axes])
        else:
            values = values.reshape([int(one) for one in call.ty.shape.values])
        return relax.const(np.ascontiguousarray(values), str(call.ty.dtype))
