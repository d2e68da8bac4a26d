"""Computes each normalization in one kernel, from the parts that importers and exporters write it in."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import tvm
from tvm import relax, te, tirx
from tvm.ir.expr import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

from tvm_gnn_cost.lowering.blocks import FUSABLE
from tvm_gnn_cost.lowering.forms import rewritten, shape_of
from tvm_gnn_cost.lowering.normalization import normalize
from tvm_gnn_cost.lowering.views import view_of, whole

#: With fewer rows than this, and more elements, several kernels use more cores than one.
_ROWS, _ELEMENTS = 16, 1 << 16


def fuse_normalizations(mod: tvm.IRModule) -> tvm.IRModule:
    """Computes layer norm, RMS norm and the like, and a softmax whose NaN are replaced by zeros, in one kernel each."""
    return relax.transform.DeadCodeElimination(["main"])(rewritten(mod, _Fusing(mod)))


@dataclass(frozen=True)
class _Statistic:
    """The mean of squares of a value, or of its difference from the mean."""

    value: Any
    axes: tuple[int, ...]
    is_centered: bool


@mutator
class _Fusing(PyExprMutator):  # type: ignore[misc]
    """Replaces the last operator of each normalization."""

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Visits a call; Relax calls this."""
        call = self.visit_expr_post_order(call)
        name = getattr(call.op, "name", "")
        if name == "relax.where":
            return self._guarded(call)
        if name not in ("relax.multiply", "relax.divide") or str(call.ty.dtype) not in ("float32", "float64"):
            return call
        for value, factor in ((call.args[0], call.args[1]), (call.args[1], call.args[0]))[
            : 1 + (name != "relax.divide")
        ]:
            found = self._deviation(factor) if name == "relax.divide" else self._inverse(factor)
            if found is not None:
                result = self._normalized(call, value, *found)
                if result is not None:
                    return result
        return call

    def _call(self, value: Any, *names: str) -> Any:
        """The call that a variable is bound to, if it is of one of these operators."""
        call = self.lookup_binding(value) if isinstance(value, relax.Var) else value
        if isinstance(call, relax.Var):
            return self._call(call, *names)
        return call if isinstance(call, relax.Call) and getattr(call.op, "name", "")[6:] in names else None

    def _inverse(self, value: Any) -> tuple[_Statistic, float, float] | None:
        """The statistic and the epsilons of which a value is the inverse deviation."""
        call = self._call(value, "divide", "rsqrt")
        if call is None:
            return None
        if call.op.name == "relax.rsqrt":
            return self._variance(call.args[0], 0.0)
        return self._deviation(call.args[1]) if _number(call.args[0]) == 1 else None

    def _deviation(self, value: Any) -> tuple[_Statistic, float, float] | None:
        """The same for sqrt(variance + epsilon) + epsilon."""
        outer, call = 0.0, self._call(value, "sqrt", "add")
        if call is not None and call.op.name == "relax.add":
            number = _number(call.args[1])
            if number is None:
                return None
            outer, call = number, self._call(call.args[0], "sqrt")
        return None if call is None else self._variance(call.args[0], outer)

    def _variance(self, value: Any, outer: float) -> tuple[_Statistic, float, float] | None:
        call, inner = self._call(value, "add"), 0.0
        if call is not None:
            for place in (0, 1):
                number = _number(call.args[place])
                if number is not None:
                    value, inner = call.args[1 - place], number
        call = self._call(value, "variance", "mean")
        if call is None or not call.attrs.keepdims or call.attrs.axis is None or shape_of(call.args[0]) is None:
            return None
        operand = call.args[0]
        axes = tuple(sorted(int(axis) % operand.ty.ndim for axis in call.attrs.axis))
        if call.op.name == "relax.variance":
            return _Statistic(operand, axes, True), inner, outer
        squares = self._call(operand, "multiply", "square")
        if squares is None or not squares.args[0].same_as(squares.args[-1]):
            return None
        centered = self._centered(squares.args[0], axes)
        return _Statistic(squares.args[0] if centered is None else centered, axes, centered is not None), inner, outer

    def _centered(self, value: Any, axes: tuple[int, ...]) -> Any:
        """The value whose difference from its mean this is; None if it is no such difference."""
        call = self._call(value, "subtract")
        mean = None if call is None else self._call(call.args[1], "mean")
        if mean is None or not mean.args[0].same_as(call.args[0]) or not mean.attrs.keepdims or mean.attrs.axis is None:
            return None
        same = tuple(sorted(int(axis) % mean.args[0].ty.ndim for axis in mean.attrs.axis)) == axes
        return call.args[0] if same else None

    def _normalized(
        self, call: relax.Call, value: Any, statistic: _Statistic, inner: float, outer: float
    ) -> relax.Expr | None:
        centered = self._centered(value, statistic.axes)
        operand = centered if statistic.is_centered else value
        if operand is None or not operand.same_as(statistic.value) or shape_of(call) != shape_of(operand):
            return None
        shape = shape_of(operand) or []
        count = math.prod(shape[axis] for axis in statistic.axes)
        if not count or (math.prod(shape) // count < _ROWS and math.prod(shape) > _ELEMENTS):
            return None
        # A group norm reads channels-last values as they are.
        view = view_of(operand, self.lookup_binding)
        grid = None if view is None or not view.is_rearranged() else view.grid()
        if view is None or grid is None:
            view, grid = whole(operand, shape), whole(operand, shape).grid()
        assert grid is not None
        places = [[grid.places[factor] for factor in axis] for axis in view.axes]
        axes = sorted(place for axis in statistic.axes for place in places[axis])
        source = self.builder_.emit(relax.op.reshape(view.source, list(grid.sizes)))
        compute = partial(normalize, axes=axes, is_centered=statistic.is_centered, inner=inner, outer=outer)
        result = self.builder_.call_te(
            compute, source, primfunc_name_hint="normalize", primfunc_attrs={"op_pattern": FUSABLE}
        )
        order = [place for axis in places for place in axis]
        order = [place for place in range(len(grid.sizes)) if place not in order] + order
        return relax.op.reshape(relax.op.permute_dims(self.builder_.emit(result), order), shape)

    def _guarded(self, call: relax.Call) -> relax.Expr:
        """where(isnan(y), 0, y) of a softmax y: the elements of a row are all NaN, or none is."""
        condition, zero, value = call.args
        isnan, softmax = self._call(condition, "isnan"), self._call(value, "nn.softmax")
        if isnan is None or softmax is None or _number(zero) != 0 or not isnan.args[0].same_as(value):
            return call
        if shape_of(call) is None or shape_of(call) != shape_of(value):
            return call
        compute = partial(_softmax_or_zero, axis=int(softmax.attrs.axis) % value.ty.ndim)
        return self.builder_.call_te(
            compute, softmax.args[0], primfunc_name_hint="softmax", primfunc_attrs={"op_pattern": FUSABLE}
        )


def _number(value: Any) -> float | None:
    """A constant scalar, or one of a single element."""
    if not isinstance(value, GenericConst) or any(int(size) != 1 for size in value.value.shape):
        return None
    return float(value.value.numpy().item())


def _softmax_or_zero(x: te.Tensor, axis: int) -> te.Tensor:
    """Softmax along an axis, with zeros in the rows whose softmax is NaN."""
    shape, length = list(x.shape), x.shape[axis]
    rows = [size for number, size in enumerate(shape) if number != axis]

    def row(at: Sequence[Any]) -> list[Any]:
        return [item for number, item in enumerate(at) if number != axis]

    def over(name: str, reduce: Any, term: te.Tensor) -> te.Tensor:
        along = te.reduce_axis((0, length), name="k")
        return te.compute(rows, lambda *at: reduce(term(*at[:axis], along, *at[axis:]), axis=along), name=name)

    maximum = over("maximum", te.max, x)
    powers = te.compute(shape, lambda *at: tirx.exp(x(*at) - maximum(*row(at))), name="powers")
    total = over("total", te.sum, powers)

    def value(*at: Any) -> Any:
        below = total(*row(at))
        # It is zero where all elements are -inf, since TVM's maximum of these is the lowest finite number, and NaN
        # where one is NaN or inf.
        return tirx.Select(below > 0, powers(*at) / below, tirx.const(0, x.dtype))

    return te.compute(shape, value, name="softmax")
