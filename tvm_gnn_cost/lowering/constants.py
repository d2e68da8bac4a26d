"""Folds constants in NumPy; TVM's ``FoldConstant`` compiles and runs a function for each call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax
from tvm.ir.expr import GenericConst
from tvm.relax.expr_functor import PyExprMutator, mutator

Array = npt.NDArray[Any]


def rearrange_constants(mod: tvm.IRModule) -> tvm.IRModule:
    """Replaces calls whose arguments are constant by their result, where NumPy's result is the same as TVM's."""
    rearranging = _Rearranging(mod)
    for var, function in mod.functions_items():
        if isinstance(function, relax.Function) and not (function.attrs and "Primitive" in function.attrs):
            rearranging.builder_.update_func(var, rearranging.visit_expr(function))
    names = [var.name_hint for var, function in mod.functions_items() if isinstance(function, relax.Function)]
    return relax.transform.DeadCodeElimination(names)(rearranging.builder_.get())


def constant(values: Array, dtype: str) -> GenericConst:
    """A Relax constant."""
    return relax.const(np.ascontiguousarray(values).reshape(values.shape), dtype)


@mutator
class _Rearranging(PyExprMutator):  # type: ignore[misc]
    """Replaces calls by constants."""

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Visits a call; Relax calls this."""
        call = self.visit_expr_post_order(call)
        compute = _COMPUTED.get(getattr(call.op, "name", ""))
        if compute is None or not isinstance(call.ty, relax.TensorType):
            return call
        operands = [self._operand(argument) for argument in call.args]
        sizes = call.ty.shape.values if isinstance(call.ty.shape, relax.ShapeExpr) else None
        if any(operand is None for operand in operands) or sizes is None:
            return call
        if not all(isinstance(size, tvm.tirx.IntImm) for size in sizes):
            return call
        shape, dtype = tuple(int(size) for size in sizes), str(call.ty.dtype)
        with np.errstate(all="ignore"):
            result = compute(call, operands, shape)
        return call if result is None or result.shape != shape else _as(result, dtype, call)

    def _operand(self, value: Any) -> Any:
        """The value of an argument (array, number, shape or tuple of these); None if it is not constant."""
        if isinstance(value, relax.Var):
            value = self.lookup_binding(value)
        if isinstance(value, GenericConst):
            return value.value.numpy()
        if isinstance(value, relax.Tuple):
            fields = [self._operand(field) for field in value.fields]
            return None if any(field is None for field in fields) else fields
        if isinstance(value, (tvm.tirx.IntImm, tvm.tirx.FloatImm)):
            return value.value
        return value if isinstance(value, relax.ShapeExpr) else None


def content(value: GenericConst) -> bytes:
    """A digest of a constant's values, shape and type; equal constants have the same."""
    array = value.value.numpy()
    return blake2b(repr((str(value.ty.dtype), array.shape)).encode() + array.tobytes()).digest()


def constant_of(value: Any, binding_of: Callable[[Any], Any]) -> GenericConst | None:
    """The constant that an expression is or a variable is bound to; None if it is none."""
    bound = binding_of(value) if isinstance(value, relax.Var) else value
    return bound if isinstance(bound, GenericConst) else None


def _as(values: Array, dtype: str, call: relax.Call) -> relax.Expr:
    """The array as a constant; the call itself if Relax has no constants of its type, such as int4."""
    try:
        return constant(values, dtype)
    except tvm.error.InternalError:
        return call


Computed = Callable[[Any, Sequence[Any], tuple[int, ...]], "Array | None"]


def _moved(function: Callable[[Any, Array], Array]) -> Computed:
    """Operators that rearrange elements."""
    return lambda call, operands, _: function(call.attrs, operands[0])


def _axes(axes: Any) -> tuple[int, ...] | None:
    return None if axes is None else tuple(int(axis) for axis in axes)


def _unary(function: Callable[[Array], Array]) -> Computed:
    """Elementwise functions that round once; on integers, those with an integer result."""

    def compute(_: Any, operands: Sequence[Any], __: tuple[int, ...]) -> Array | None:
        (values,) = operands
        if values.dtype.kind in "iub":
            return function(values) if function in (np.negative, np.abs, np.logical_not) else None
        result = function(values.astype(np.float64))
        return result if result.dtype == bool else result.astype(values.dtype)

    return compute


def _binary(function: Callable[[Array, Array], Array], integers: bool = True) -> Computed:
    """Binary elementwise functions on operands of the same type."""

    def compute(_: Any, operands: Sequence[Any], __: tuple[int, ...]) -> Array | None:
        first, second = operands
        if not isinstance(first, np.ndarray) or not isinstance(second, np.ndarray) or first.dtype != second.dtype:
            return None
        if first.dtype.kind in "iub" and not integers:
            return None
        # NumPy propagates NaN here, TVM does not.
        if function in (np.maximum, np.minimum) and (np.isnan(first).any() or np.isnan(second).any()):
            return None
        result = function(first, second)
        return result if result.dtype in (first.dtype, np.dtype(bool)) else None

    return compute


def _astype(call: Any, operands: Sequence[Any], _: tuple[int, ...]) -> Array | None:
    """Casts; not of floats that the target type cannot represent, which is undefined."""
    values, dtype = operands[0], np.dtype(_numpy_type(str(call.ty.dtype)))
    if dtype.kind in "iu" and values.dtype.kind not in "iub" and values.size:
        limits, wide = np.iinfo(dtype), values.astype(np.float64)
        if not (np.isfinite(wide).all() and wide.min() >= limits.min and wide.max() < limits.max):
            return None
    return np.asarray(values.astype(dtype))


def _numpy_type(name: str) -> Any:
    if hasattr(np, name) or name == "bool":
        return name
    import ml_dtypes

    return getattr(ml_dtypes, name)


def _filled(call: Any, shape: tuple[int, ...], value: Any) -> Array:
    return np.full(shape, value, _numpy_type(str(call.ty.dtype)))


def _take(call: Any, operands: Sequence[Any], _: tuple[int, ...]) -> Array | None:
    values, indices = operands
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    length = values.size if axis is None else values.shape[axis]
    inside = isinstance(indices, np.ndarray) and bool(((indices >= -length) & (indices < length)).all())
    return np.take(values, indices, axis) if inside and (str(call.attrs.mode) == "wrap" or indices.min() >= 0) else None


def _strided_slice(_: Any, operands: Sequence[Any], __: tuple[int, ...]) -> Array | None:
    values, axes, begin, end, *strides = operands
    parts = [slice(None)] * values.ndim
    for number, axis in enumerate(axes):
        step = strides[0][number] if strides else 1
        if step <= 0:
            return None
        parts[axis] = slice(begin[number], end[number], step)
    return np.asarray(values[tuple(parts)])


def _where(_: Any, operands: Sequence[Any], __: tuple[int, ...]) -> Array | None:
    return np.where(*operands) if operands[1].dtype == operands[2].dtype else None


def _same(_: Any, operands: Sequence[Any], shape: tuple[int, ...]) -> Array:
    return np.reshape(operands[0], shape)


_COMPUTED: dict[str, Computed] = {
    f"relax.{name}": compute
    for name, compute in (
        *((name, _same) for name in ("reshape", "squeeze", "expand_dims", "flatten")),
        ("permute_dims", _moved(lambda attributes, values: values.transpose(_axes(attributes.axes)))),
        ("flip", _moved(lambda attributes, values: np.flip(values, int(attributes.axis)))),
        ("tile", _moved(lambda attributes, values: np.tile(values, _axes(attributes.repeats) or ()))),
        ("broadcast_to", lambda _, operands, shape: np.broadcast_to(operands[0], shape)),
        ("concat", lambda call, operands, _: np.concatenate(operands[0], call.attrs.axis)),
        ("stack", lambda call, operands, _: np.stack(operands[0], call.attrs.axis or 0)),
        ("full", lambda call, operands, shape: _filled(call, shape, operands[1])),
        ("full_like", lambda call, operands, shape: _filled(call, shape, operands[1])),
        ("zeros", lambda call, _, shape: _filled(call, shape, 0)),
        ("zeros_like", lambda call, _, shape: _filled(call, shape, 0)),
        ("ones", lambda call, _, shape: _filled(call, shape, 1)),
        ("ones_like", lambda call, _, shape: _filled(call, shape, 1)),
        ("astype", _astype),
        ("take", _take),
        ("strided_slice", _strided_slice),
        ("where", _where),
        *((name, _unary(getattr(np, name))) for name in ("abs", "ceil", "cos", "exp", "floor", "log", "negative")),
        *((name, _unary(getattr(np, name))) for name in ("sin", "sqrt", "square", "tanh", "logical_not")),
        ("rsqrt", _unary(lambda values: 1 / np.sqrt(values))),
        *((name, _binary(getattr(np, name))) for name in ("add", "subtract", "multiply", "maximum", "minimum")),
        *((name, _binary(getattr(np, name), integers=False)) for name in ("divide", "power")),
        *((name, _binary(getattr(np, name))) for name in ("equal", "not_equal", "greater", "greater_equal")),
        *((name, _binary(getattr(np, name))) for name in ("less", "less_equal", "logical_and", "logical_or")),
    )
}
