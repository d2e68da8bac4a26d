"""Elementwise operators."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np
from tvm import relax, te, tirx

from tvm_gnn_cost.importing.relax.rules import HALF, Primitive, Unsupported, rule

_UNARY: dict[str, Callable[[relax.Expr], relax.Expr]] = {
    "Abs": relax.op.abs,
    "Acos": relax.op.acos,
    "Acosh": relax.op.acosh,
    "Asin": relax.op.asin,
    "Asinh": relax.op.asinh,
    "Atan": relax.op.atan,
    "Atanh": relax.op.atanh,
    "Ceil": relax.op.ceil,
    "Cos": relax.op.cos,
    "Cosh": relax.op.cosh,
    "Erf": relax.op.erf,
    "Exp": relax.op.exp,
    "Floor": relax.op.floor,
    "Log": relax.op.log,
    "Neg": relax.op.negative,
    "Not": relax.op.logical_not,
    "Sigmoid": relax.op.sigmoid,
    "Sin": relax.op.sin,
    "Sinh": relax.op.sinh,
    "Sqrt": relax.op.sqrt,
    "Tan": relax.op.tan,
    "Tanh": relax.op.tanh,
    "BitwiseNot": relax.op.bitwise_not,
}

_BINARY: dict[str, Callable[[relax.Expr, relax.Expr], relax.Expr]] = {
    "Add": relax.op.add,
    "Sub": relax.op.subtract,
    "Mul": relax.op.multiply,
    "And": relax.op.logical_and,
    "Or": relax.op.logical_or,
    "Xor": relax.op.logical_xor,
    "Equal": relax.op.equal,
    "Greater": relax.op.greater,
    "GreaterOrEqual": relax.op.greater_equal,
    "Less": relax.op.less,
    "LessOrEqual": relax.op.less_equal,
    "BitwiseAnd": relax.op.bitwise_and,
    "BitwiseOr": relax.op.bitwise_or,
    "BitwiseXor": relax.op.bitwise_xor,
}


@rule(*_UNARY)
def unary(node: Primitive) -> relax.Expr:
    """A unary function."""
    return _UNARY[node.operator](node.tensor(0))


@rule(*_BINARY)
def binary(node: Primitive) -> relax.Expr:
    """A binary operator with broadcasting."""
    left, right = node.tensor(0), node.tensor(1)
    if node.version < 7 and node.attribute("broadcast"):
        right = _as_before_opset_7(node, right)
    if node.operator == "Equal" and node.dtype(0) == "bool":
        # TVM compares booleans as floats, which LLVM rejects.
        left, right = relax.op.astype(left, "int8"), relax.op.astype(right, "int8")
    return _BINARY[node.operator](left, right)


def _as_before_opset_7(node: Primitive, right: relax.Expr) -> relax.Expr:
    """The second operand before opset 7, aligned to ``axis`` of the first operand."""
    rank, right_shape = len(node.shape(0)), node.shape(1)
    axis = node.attribute("axis")
    if axis is None:
        return right
    return relax.op.reshape(right, [*right_shape, *[1] * (rank - axis % rank - len(right_shape))])


@rule("Reciprocal")
def reciprocal(node: Primitive) -> relax.Expr:
    """1 / x."""
    return relax.op.divide(node.const(1, node.dtype(0)), node.tensor(0))


@rule("Sign")
def sign(node: Primitive) -> relax.Expr:
    """-1, 0 or 1; NaN of NaN."""
    x = node.emit(node.tensor(0))
    zero, one = node.const(0, node.dtype(0)), node.const(1, node.dtype(0))
    if node.dtype(0).startswith("uint"):
        return relax.op.minimum(x, one)
    negative = relax.op.where(relax.op.less(x, zero), node.const(-1, node.dtype(0)), x)
    return relax.op.where(relax.op.greater(x, zero), one, negative)


@rule("Round")
def rounded(node: Primitive) -> relax.Expr:
    """Rounds half to even."""
    return relax.op.round(node.tensor(0))


@rule("IsNaN")
def is_nan(node: Primitive) -> relax.Expr:
    """NaN."""
    return relax.op.isnan(node.tensor(0))


@rule("IsInf")
def is_inf(node: Primitive) -> relax.Expr:
    """Infinity, of the signs that the attributes select."""
    x, zero = node.emit(node.tensor(0)), node.const(0, node.dtype(0))
    infinite = relax.op.isinf(x)
    if not node.attribute("detect_positive"):
        infinite = relax.op.logical_and(infinite, relax.op.less(x, zero))
    if not node.attribute("detect_negative"):
        infinite = relax.op.logical_and(infinite, relax.op.greater(x, zero))
    return infinite


@rule("Div")
def divide(node: Primitive) -> relax.Expr:
    """Division; of integers, truncated. An integer divided by zero is unchanged, so that the process does not crash."""
    left, right = node.tensor(0), node.tensor(1)
    if node.version < 7 and node.attribute("broadcast"):
        right = _as_before_opset_7(node, right)
    if not _is_integer(node.dtype(0)):
        return relax.op.divide(left, right)
    return _integers(node, left, right, tirx.truncdiv, "divide")


@rule("Mod")
def modulo(node: Primitive) -> relax.Expr:
    """The remainder, with the sign of the dividend for ``fmod`` (as in C), else of the divisor (as in Python)."""
    left, right, dtype = node.tensor(0), node.tensor(1), node.dtype(0)
    of_dividend = bool(node.attribute("fmod"))
    if _is_integer(dtype):
        return _integers(node, left, right, tirx.truncmod if of_dividend else tirx.floormod, "modulo")

    def remainder(a: Any, b: Any) -> Any:
        # TVM's intrinsic does not compile; the C library's function is exact.
        result = tirx.call_pure_extern(dtype, "fmod" if dtype == "float64" else "fmodf", a, b)
        if of_dividend:
            return result
        zero = tirx.const(0, dtype)
        differs = tirx.any(tirx.all(result < zero, b > zero), tirx.all(result > zero, b < zero))
        return tirx.Select(differs, result + b, result)

    return _broadcast_te(node, left, right, remainder, "modulo")


def _integers(node: Primitive, left: relax.Expr, right: relax.Expr, operator: Any, name: str) -> relax.Expr:
    def safe(a: Any, b: Any) -> Any:
        return operator(a, tirx.Select(b == 0, tirx.const(1, b.ty.dtype if hasattr(b, "ty") else b.dtype), b))

    return _broadcast_te(node, left, right, safe, name)


def _broadcast_te(node: Primitive, left: relax.Expr, right: relax.Expr, operator: Any, name: str) -> relax.Expr:
    """Applies a function of scalars with broadcasting."""
    shape = node.out_shape()

    def compute(a: te.Tensor, b: te.Tensor) -> te.Tensor:
        return te.compute(shape, lambda *i: operator(_at(a, i), _at(b, i)), name=name)

    return node.te(compute, left, right, name=name)


def _at(tensor: te.Tensor, indices: Any) -> Any:
    """An element of a broadcast tensor."""
    shape = [int(size) for size in tensor.shape]
    aligned = indices[len(indices) - len(shape) :]
    return tensor[tuple(0 if size == 1 else index for size, index in zip(shape, aligned, strict=True))]


@rule("Pow")
def power(node: Primitive) -> relax.Expr:
    """Powers, of the base's type; products for small constant exponents."""
    base, dtype = node.emit(node.tensor(0)), node.dtype(0)
    if node.is_constant(1):
        exponent = np.asarray(node.value(1))
        if exponent.size == 1 and len(exponent.shape) <= len(node.shape(0)):
            number = float(exponent.reshape(-1)[0].astype(np.float64))
            if number == 1:
                return relax.op.broadcast_to(base, node.out_shape())
            if number == 2:
                return relax.op.broadcast_to(relax.op.multiply(base, base), node.out_shape())
            if number == 3:
                return relax.op.broadcast_to(relax.op.multiply(relax.op.multiply(base, base), base), node.out_shape())
            if number == 0.5 and not _is_integer(dtype):
                return relax.op.broadcast_to(relax.op.sqrt(base), node.out_shape())
    if _is_integer(dtype):
        # As in C: computed in float64 and truncated.
        output = relax.op.power(relax.op.astype(base, "float64"), relax.op.astype(node.tensor(1), "float64"))
        return relax.op.astype(output, dtype)
    exponent = node.tensor(1)
    if node.dtype(1) != dtype:
        exponent = relax.op.astype(exponent, dtype)
    return relax.op.power(base, exponent)


@rule("BitShift")
def shift(node: Primitive) -> relax.Expr:
    """Bit shifts; a shift by less than 0, or by the width of the type or more, leaves only the sign."""
    dtype = node.dtype(0)
    move = tirx.shift_left if node.attribute("direction") == "LEFT" else tirx.shift_right
    width = np.dtype(dtype).itemsize * 8
    is_arithmetic = node.attribute("direction") != "LEFT" and not dtype.startswith("u")

    def moved(a: Any, b: Any) -> Any:
        # Compared as signed integers: TVM rejects its own lowering of unsigned comparisons.
        by = b.astype("int64")
        known = tirx.all(by >= tirx.const(0, "int64"), by < tirx.const(width, "int64"))
        # Larger shifts are undefined; to the right, the sign fills all bits.
        sign = move(a, tirx.const(width - 1, dtype)) if is_arithmetic else tirx.const(0, dtype)
        return tirx.Select(known, move(a, tirx.Select(known, b, tirx.const(1, dtype))), sign)

    return _broadcast_te(node, node.tensor(0), node.tensor(1), moved, "shift")


@rule("Max", "Min")
def extreme(node: Primitive) -> relax.Expr:
    """The maximum or minimum of all operands, which propagates NaN."""
    choose = relax.op.maximum if node.operator == "Max" else relax.op.minimum

    def both(left: relax.Expr, right: relax.Expr) -> relax.Expr:
        if _is_integer(node.dtype(0)):
            return node.emit(choose(left, right))
        # TVM returns the second operand if the first is NaN.
        left = node.emit(left)
        return node.emit(relax.op.where(relax.op.isnan(left), left, choose(left, right)))

    # Constants first: they are not NaN, and TVM's comparison propagates a NaN of the second operand.
    fixed = [node.tensor(i) for i in range(len(node.node.inputs)) if node.is_constant(i)]
    others = [node.tensor(i) for i in range(len(node.node.inputs)) if not node.is_constant(i)]
    if fixed and not any(np.isnan(np.asarray(constant, np.float64)).any() for constant in _constants(node)):
        extremum = reduce(lambda left, right: node.emit(choose(left, right)), fixed)
        rest = reduce(both, others)
        return choose(extremum, rest)
    return reduce(both, [*fixed, *others])


def _constants(node: Primitive) -> list[Any]:
    return [operand for operand in node.node.inputs if isinstance(operand, np.ndarray)]


@rule("Sum", "Mean")
def variadic(node: Primitive) -> relax.Expr:
    """The sum or the mean of all operands."""
    tensors = node.tensors()
    total = reduce(relax.op.add, tensors)
    if node.operator == "Mean":
        return relax.op.divide(total, node.const(len(tensors), node.dtype(0)))
    return total


@rule("Where", moves=True)
def where(node: Primitive) -> relax.Expr:
    """Selects by a condition."""
    return relax.op.where(node.tensor(0), node.tensor(1), node.tensor(2))


@rule("Relu")
def relu(node: Primitive) -> relax.Expr:
    """max(0, x), with the constant first so that NaN is propagated."""
    return relax.op.maximum(node.const(0, node.dtype(0)), node.tensor(0))


@rule("Clip")
def clip(node: Primitive) -> relax.Expr:
    """min(high, max(low, x)), with the bounds first so that NaN is propagated."""
    value, dtype = node.tensor(0), node.dtype(0)
    for position, name, choose in ((1, "min", relax.op.maximum), (2, "max", relax.op.minimum)):
        if node.version < 11:
            bound = node.attribute(name)
            if bound is None or abs(bound) >= np.finfo(np.float32).max:
                continue
            value = choose(node.const(bound, dtype), value)
        elif node.has(position):
            value = choose(node.tensor(position), value)
    return value


@rule("LeakyRelu")
def leaky_relu(node: Primitive) -> relax.Expr:
    """x, scaled by a constant where it is negative."""
    x = node.emit(node.tensor(0))
    zero = node.const(0, node.dtype(0))
    share = relax.op.multiply(x, node.const(node.attribute("alpha"), node.dtype(0)))
    return relax.op.where(relax.op.less(x, zero), share, x)


@rule("PRelu")
def prelu(node: Primitive) -> relax.Expr:
    """x, scaled by an operand where it is negative."""
    x, slope = node.emit(node.tensor(0)), node.tensor(1)
    if node.version < 7 and len(node.shape(1)) == 1 and node.shape(1)[0] > 1:
        slope = relax.op.reshape(slope, [node.shape(1)[0], *[1] * (len(node.shape(0)) - 2)])
    return relax.op.where(relax.op.less(x, node.const(0, node.dtype(0))), relax.op.multiply(x, slope), x)


@rule("Softplus")
def softplus(node: Primitive) -> relax.Expr:
    """log(1 + exp(x)), without overflow: max(x, 0) + log(1 + exp(-|x|))."""
    x = node.emit(node.tensor(0))
    zero, one = node.const(0, node.dtype(0)), node.const(1, node.dtype(0))
    small = node.emit(relax.op.exp(relax.op.negative(relax.op.abs(x))))
    # Compensates for the rounding of 1 + small, whose error is known exactly.
    total = node.emit(relax.op.add(one, small))
    kept = node.emit(relax.op.subtract(total, one))
    is_lost = relax.op.equal(kept, zero)
    exact = relax.op.multiply(relax.op.log(total), relax.op.divide(small, relax.op.where(is_lost, one, kept)))
    rest = relax.op.where(is_lost, small, exact)
    return relax.op.add(relax.op.maximum(zero, x), rest)


@rule("Cast", moves=True)
def cast(node: Primitive) -> relax.Expr:
    """Casts: floats to integers truncated, nonzero values to true."""
    x, source, wanted = node.tensor(0), np.dtype(node.value(0).dtype), node.output().dtype
    for dtype in (source, wanted):
        if dtype not in HALF and dtype.kind not in "biuf":
            raise Unsupported(f"TVM does not support {dtype}")
        if dtype.name.startswith("float8") or dtype.itemsize < 1:
            raise Unsupported(f"TVM does not support {dtype}")
    if source in HALF and wanted not in HALF and wanted != np.float32:
        x, source = relax.op.astype(x, "float32"), np.dtype(np.float32)
    if source in HALF and wanted in HALF:
        x, source = relax.op.astype(x, "float32"), np.dtype(np.float32)
    if wanted == np.bool_:
        return relax.op.not_equal(x, node.const(0, str(source)))
    if source.kind == "f" and wanted.kind in "iu" and wanted.itemsize < 4:
        # Processors convert to at least 32 bits, and narrower types wrap around.
        return relax.op.astype(relax.op.astype(x, "int32"), str(wanted))
    if source == np.float64 and wanted == ml_dtypes.bfloat16:
        x = relax.op.astype(x, "float32")
    return relax.op.astype(x, str(wanted))


def _is_integer(dtype: str) -> bool:
    return np.dtype(dtype).kind in "iub"
