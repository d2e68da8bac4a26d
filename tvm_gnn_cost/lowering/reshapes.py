"""Moves reshapes behind the operators that compute the same on either shape, so that these are fused with products.

A reshape between two kernels costs nothing; between a product and its epilogue, it costs a kernel.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.ir.expr import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_gnn_cost.lowering.constants import constant
from tvm_gnn_cost.lowering.forms import (
    ELEMENTWISE,
    follows_product,
    groups_of,
    rewritten,
    shape_of,
    with_attributes,
)
from tvm_gnn_cost.lowering.views import MOVES, view_of


def sink_reshapes(mod: tvm.IRModule) -> tvm.IRModule:
    """Moves reshapes behind elementwise operators, softmax and products by matrices, until they cancel."""
    mod = relax.transform.CanonicalizeBindings()(rewritten(mod, _Sinking(mod)))
    return relax.transform.DeadCodeElimination(["main"])(mod)


@mutator
class _Sinking(PyExprMutator):  # type: ignore[misc]
    """Rewrites the operators after reshapes."""

    def __init__(self, mod: tvm.IRModule) -> None:
        super().__init__(mod)
        self.readers: dict[Any, int] = {}
        self.fused: dict[Any, bool] = {}
        for block in mod["main"].body.blocks:
            for binding in block.bindings:
                for variable in relax.analysis.free_vars(binding.value):
                    self.readers[variable] = self.readers.get(variable, 0) + 1

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Visits a call; Relax calls this."""
        before = list(call.args)
        call = self.visit_expr_post_order(call)
        name, shape = getattr(call.op, "name", "").removeprefix("relax."), shape_of(call)
        if shape is None or 0 in shape:
            return call
        if name in MOVES:
            return self._move(call, shape)
        if name in ELEMENTWISE:
            single = {here for here, old in zip(call.args, before, strict=True) if self.readers.get(old) == 1}
            return self._elementwise(call, shape, single)
        if name == "matmul":
            return self._matmul(call, shape)
        if name in ("nn.softmax", "nn.log_softmax") and int(call.attrs.axis) % len(shape) == len(shape) - 1:
            source = self._source(call.args[0])
            if source is not None and (shape_of(source) or [0])[-1] == shape[-1]:
                result = with_attributes(call, [source], axis=source.ty.ndim - 1)
                return relax.op.reshape(self.builder_.emit(result), shape)
        return call

    def _source(self, value: Any) -> Any:
        """The value of which a variable is a reshape; None if it is of none."""
        call = self.lookup_binding(value) if isinstance(value, relax.Var) else None
        if isinstance(call, relax.Var):
            return self._source(call)
        return call.args[0] if isinstance(call, relax.Call) and call.op == tvm.ir.Op.get("relax.reshape") else None

    def _move(self, call: relax.Call, shape: Sequence[int]) -> relax.Expr:
        """A chain of moves that keeps all elements in order, as one reshape."""
        value = call.args[0]
        if not isinstance(value, relax.Var):
            return call
        operand = view_of(value, self.lookup_binding)
        if operand is None:
            return call
        view = MOVES[call.op.name.removeprefix("relax.")](operand, call, shape)
        if view is None or not view.is_whole():
            return call
        return view.source if shape_of(view.source) == list(shape) else relax.op.reshape(view.source, shape)

    def _elementwise(self, call: relax.Call, shape: list[int], single: set[Any]) -> relax.Expr:
        """Computes an elementwise operator in the shape before the reshape of an operand."""
        tensors = [argument for argument in call.args if isinstance(argument.ty, relax.TensorType)]
        whole = [value for value in tensors if isinstance(value, relax.Var) and shape_of(value) == shape]
        sources = {value: source for value in whole if (source := self._source(value)) is not None}
        if not sources:
            return call
        sources = dict(sorted(sources.items(), key=lambda item: item[0] not in single or not self._is_fused(item[1])))
        first, source = next(iter(sources.items()))
        target = shape_of(source) or []
        others = [value for value in whole if value not in sources or shape_of(sources[value]) != target]
        if others and (not self._is_fused(source) or first not in single):
            return call
        if any(other in single and self._is_fused(sources.get(other, other)) for other in others):
            return call
        operands = []
        for argument in call.args:
            operand = argument
            if argument in tensors:
                operand = self._in_shape(argument, shape, target, sources)
                if operand is None:
                    return call
            operands.append(operand)
        return relax.op.reshape(self.builder_.emit(relax.Call(call.op, operands, call.attrs)), shape)

    def _in_shape(self, value: Any, shape: list[int], target: list[int], sources: dict[Any, Any]) -> Any:
        """An operand in the shape before the reshape; None if it has none that broadcasts to it."""
        there = shape_of(value)
        if there is None:
            return None
        if not there:
            return value
        if value in sources and shape_of(sources[value]) == target:
            return sources[value]
        there = [1] * (len(shape) - len(there)) + there
        groups = groups_of(shape, target)
        if groups is None:
            return None
        sizes = [1] * len(target)
        spread = list(there)
        for here, new in groups:
            if all(there[axis] == shape[axis] for axis in here):
                for axis in new:
                    sizes[axis] = target[axis]
            elif any(there[axis] != 1 for axis in here):
                if not isinstance(value, GenericConst):
                    return None
                for axis in here:
                    spread[axis] = shape[axis]
                for axis in new:
                    sizes[axis] = target[axis]
        if isinstance(value, GenericConst):
            array = np.broadcast_to(value.value.numpy().reshape(there), spread)
            return constant(array.reshape(sizes), str(value.ty.dtype))
        return value if shape_of(value) == sizes else self.builder_.emit(relax.op.reshape(value, sizes))

    def _is_fused(self, value: Any) -> bool:
        """Whether an operator on a value is fused with a product."""
        return follows_product(value, self.lookup_binding, self.fused)

    def _matmul(self, call: relax.Call, shape: list[int]) -> relax.Expr:
        """A product by a matrix, of the value before a reshape that adds or removes axes of size 1."""
        value, matrix = call.args
        source = self._source(value)
        if source is None or matrix.ty.ndim != 2 or value.ty.ndim < 2 or source.ty.ndim < 2:
            return call
        here, there = ([size for size in shape_of(item) or [] if size > 1] for item in (value, source))
        if here != there or (shape_of(source) or [0])[-1] != (shape_of(value) or [0])[-1]:
            return call
        return relax.op.reshape(self.builder_.emit(relax.Call(call.op, [source, matrix], call.attrs)), shape)
