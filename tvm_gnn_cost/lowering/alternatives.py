"""Combines two lowerings of a network task by task: direct convolutions and Winograd's."""

from __future__ import annotations

from collections.abc import Collection

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_gnn_cost.lowering.kernels import is_kernel_call, kernel_calls, task_key


def replacements(first: tvm.IRModule, second: tvm.IRModule) -> dict[str, str]:
    """Maps the task keys of ``second`` to those of ``first`` that they replace, where the two modules differ.

    Empty if TVM fused the two modules differently.
    """
    here, there = kernel_calls(first), kernel_calls(second)
    if len(here) != len(there):
        return {}
    keys = (
        (task_key(second[other.args[0]]), task_key(first[item.args[0]]))
        for item, other in zip(here, there, strict=True)
    )
    return {other: item for other, item in keys if other != item}


def mixed(first: tvm.IRModule, second: tvm.IRModule, keys: Collection[str]) -> tvm.IRModule:
    """``first`` with the functions of ``second`` whose keys are given."""
    mixing = _Mixing(first, second, keys)
    main = mixing.visit_expr(second["main"])
    mixing.builder_.update_func(second.get_global_var("main"), main)
    return relax.transform.DeadCodeElimination()(mixing.builder_.get())


@mutator
class _Mixing(PyExprMutator):  # type: ignore[misc]
    """Restores the functions of ``first`` in ``second``, except those whose keys are given."""

    def __init__(self, first: tvm.IRModule, second: tvm.IRModule, keys: Collection[str]) -> None:
        super().__init__(second)
        self.first, self.second, self.keys = first, second, keys
        self.originals = iter(kernel_calls(first))

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Visits a call; Relax calls this."""
        call = self.visit_expr_post_order(call)
        if not is_kernel_call(call):
            return call
        original, key = next(self.originals), task_key(self.second[call.args[0]])
        if key in self.keys or key == task_key(self.first[original.args[0]]):
            return call
        function = self.builder_.add_func(self.first[original.args[0]], original.args[0].name_hint)
        arguments = [
            there if isinstance(there, tvm.ir.expr.GenericConst) else here
            for here, there in zip(call.args[1], original.args[1], strict=True)
        ]
        return relax.call_tir(function, relax.Tuple(arguments), call.ty)
