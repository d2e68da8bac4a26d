"""Combines two lowerings of a network task by task: direct convolutions and Winograd's."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator
from tvm.s_tir import meta_schedule as ms


def replacements(first: tvm.IRModule, second: tvm.IRModule) -> dict[str, str]:
    """Maps the task keys of ``second`` to those of ``first`` that they replace, where the two modules differ.

    Empty if TVM fused the two modules differently.
    """
    here, there = _called(first), _called(second)
    if len(here) != len(there):
        return {}
    keys = ((_key(second, other), _key(first, item)) for item, other in zip(here, there, strict=True))
    return {other: item for other, item in keys if other != item}


def mixed(first: tvm.IRModule, second: tvm.IRModule, keys: Collection[str]) -> tvm.IRModule:
    """``first`` with the functions of ``second`` whose keys are given."""
    mixing = _Mixing(first, second, keys)
    main = mixing.visit_expr(second["main"])
    mixing.builder_.update_func(second.get_global_var("main"), main)
    return relax.transform.DeadCodeElimination()(mixing.builder_.get())


def _called(mod: tvm.IRModule) -> list[relax.Call]:
    """The calls of TensorIR functions, in program order."""

    def calls() -> Iterator[relax.Call]:
        for block in mod["main"].body.blocks:
            for binding in block.bindings:
                if _is_call_tir(binding.value):
                    yield binding.value

    return list(calls())


def _is_call_tir(value: relax.Expr) -> bool:
    return isinstance(value, relax.Call) and getattr(value.op, "name", "") == "relax.call_tir"


def _key(mod: tvm.IRModule, call: relax.Call) -> str:
    """The key of a call's task: the structural hash of the module that TVM's task extraction makes of the callee."""
    return str(ms.utils.shash2hex(tvm.get_global_func("tvm.s_tir.meta_schedule.normalize_mod")(mod[call.args[0]])))


@mutator
class _Mixing(PyExprMutator):  # type: ignore[misc]
    """Restores the functions of ``first`` in ``second``, except those whose keys are given."""

    def __init__(self, first: tvm.IRModule, second: tvm.IRModule, keys: Collection[str]) -> None:
        super().__init__(second)
        self.first, self.second, self.keys = first, second, keys
        self.originals = iter(_called(first))

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Visits a call; Relax calls this."""
        call = self.visit_expr_post_order(call)
        if not _is_call_tir(call):
            return call
        original, key = next(self.originals), _key(self.second, call)
        if key in self.keys or key == _key(self.first, original):
            return call
        function = self.builder_.add_func(self.first[original.args[0]], original.args[0].name_hint)
        arguments = [
            there if isinstance(there, tvm.ir.expr.GenericConst) else here
            for here, there in zip(call.args[1], original.args[1], strict=True)
        ]
        return relax.call_tir(function, relax.Tuple(arguments), call.ty)
