"""Replaces calls of elementwise functions by arithmetic that is vectorized.

TVM leaves ``exp``, ``erf`` and others to the C library, which computes a single value at a time; a vectorized loop then
takes 10 to 50 times as long as it needs for its memory. The relative error of the approximations here is at most 5e-7;
NaN, infinities, denormal numbers and signed zeros are handled as in NumPy. float16 is computed in float32; float64
keeps the functions of the C library. The polynomials are those of Cephes (Moshier, netlib.org/cephes) and Eigen.

The functions are written as LLVM IR, which TVM links into its own and inlines. As expressions of TensorIR they would be
expanded into trees by the simplifier of its code generator: ``tanh(log(exp(x) + 1))`` took 90 seconds.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from tvm_gnn_cost.lowering.vectors import WIDEST, vector_lanes

#: The exponential of values below it is 0.
_LOWEST = -104.0

#: The functions of the C library's libm that compute a value of a value, or of two.
_LIBM = re.compile(
    rb"(?<=\0)(?:a?(?:cos|sin|tan)h?|atan2|cbrt|erfc?|exp(?:2|10|m1)?|fmod|log(?:2|10|1p)?|pow|[lt]gamma)f?(?=\0)"
)


def libm_calls(library: Path) -> set[str]:
    """The functions of the C library's libm that an object file or a shared library refers to.

    Args:
        library: An ELF file; a name in its string tables counts.
    """
    return {name.decode() for name in _LIBM.findall(library.read_bytes())}


def lower_math(function: tvm.tirx.PrimFunc) -> tvm.tirx.PrimFunc:
    """A function with its calls of elementwise functions replaced.

    Args:
        function: A function whose loops have been vectorized.
    """
    needed: dict[tuple[str, int], str] = {}

    def replaced(call: Any) -> Any:
        name = _key(call)
        if name not in _RULES or not (dtype := str(call.ty.dtype)).startswith(("float32", "float16")):
            return call
        wide = dtype.replace("float16", "float32")
        symbol = needed.setdefault((name, int(wide.partition("x")[2] or 1)), _symbol(name, wide))
        return tirx.call_pure_extern(wide, symbol, call.args[0].astype(wide)).astype(dtype)

    function = tvm_ffi.structural_map(function, (tvm.ir.Call, replaced))
    if not needed:
        return function
    widest = vector_lanes(function.attrs["target"])
    code = "\n".join(
        _llvm(name, lanes, symbol, is_avx512=lanes == widest == WIDEST) for (name, lanes), symbol in needed.items()
    )
    return function.with_body(
        tirx.AttrStmt(tvm.ir.StringImm(""), "pragma_import_llvm", tvm.ir.StringImm(code), function.body)
    )


def _key(call: Any) -> str:
    """The name of a call's function; that of a power with a constant exponent has the exponent."""
    name = str(getattr(call.op, "name", "")).removeprefix("tirx.")
    if name != "pow":
        return name
    exponent = call.args[1]
    while isinstance(exponent, tirx.Broadcast | tirx.Cast):
        exponent = exponent.value
    return f"pow {exponent.value:g}" if isinstance(exponent, tirx.FloatImm | tirx.IntImm) else "pow"


def _symbol(name: str, dtype: str) -> str:
    return "tvm_gnn_cost_" + re.sub(
        r"\W", lambda match: {"-": "minus", ".": "point"}.get(match[0], "_"), f"{name}_{dtype}"
    )


@cache
def _llvm(name: str, lanes: int, symbol: str, is_avx512: bool) -> str:
    """The definition of a function in LLVM IR."""
    code = _Code(is_avx512)
    kind = _Kind("float", lanes)
    result = _RULES[name](_Value("%x", kind, code))
    body = "\n".join(code.lines)
    return f"define {kind} @{symbol}({kind} %x) {{\n{body}\nret {result.kind} {result.name}\n}}\n"


class _Code:
    """The instructions of a function.

    Args:
        is_avx512: Whether its values are the vector registers of AVX-512, so that the instructions that only it has can
            be used.
    """

    def __init__(self, is_avx512: bool) -> None:
        self.is_avx512 = is_avx512
        self.lines: list[str] = []


class _Kind(tuple[str, int]):
    """A scalar or vector type of LLVM."""

    def __new__(cls, element: str, lanes: int) -> _Kind:
        return super().__new__(cls, (element, lanes))

    def __str__(self) -> str:
        element, lanes = self
        return element if lanes == 1 else f"<{lanes} x {element}>"


class _Value:
    """A value in LLVM IR; operators append an instruction.

    Args:
        name: Its name or its constant.
        kind: Its type.
        code: The function.
    """

    def __init__(self, name: str, kind: _Kind, code: _Code) -> None:
        self.name, self.kind, self.code = name, kind, code

    def constant(self, value: float) -> _Value:
        """A constant of the same type."""
        element, lanes = self.kind
        if element == "float":
            value = struct.unpack("f", struct.pack("f", value))[0]
        text = f"0x{struct.unpack('Q', struct.pack('d', value))[0]:016X}" if self._is_float else str(int(value))
        if lanes > 1:
            text = f"<{', '.join([f'{element} {text}'] * lanes)}>"
        return _Value(text, self.kind, self.code)

    @property
    def _is_float(self) -> bool:
        return self.kind[0] in ("float", "double")

    def _emit(self, text: str, kind: _Kind | None = None) -> _Value:
        name = f"%t{len(self.code.lines)}"
        self.code.lines.append(f"{name} = {text}")
        return _Value(name, kind or self.kind, self.code)

    def _operation(self, name: str, other: _Value | float) -> _Value:
        other = other if isinstance(other, _Value) else self.constant(other)
        # A product and a sum may be computed without rounding in between.
        operation = f"f{name} contract" if self._is_float else name
        return self._emit(f"{operation} {self.kind} {self.name}, {other.name}")

    def __add__(self, other: _Value | float) -> _Value:
        return self._operation("add", other)

    def __sub__(self, other: _Value | float) -> _Value:
        return self._operation("sub", other)

    def __mul__(self, other: _Value | float) -> _Value:
        return self._operation("mul", other)

    def __truediv__(self, other: _Value | float) -> _Value:
        return self._operation("div", other)

    def __rsub__(self, other: float) -> _Value:
        return self.constant(other) - self

    def __rtruediv__(self, other: float) -> _Value:
        return self.constant(other) / self

    def __neg__(self) -> _Value:
        return self._emit(f"fneg {self.kind} {self.name}")

    def __and__(self, other: int) -> _Value:
        return self._operation("and", other)

    def __lshift__(self, other: int) -> _Value:
        return self._operation("shl", other)

    def __rshift__(self, other: int) -> _Value:
        return self._operation("ashr", other)

    def is_(self, comparison: str, bound: float) -> _Value:
        """The result of a comparison: oeq, olt, ogt, ... for floats, eq for integers."""
        instruction = "fcmp" if self._is_float else "icmp"
        return self._emit(
            f"{instruction} {comparison} {self.kind} {self.name}, {self.constant(bound).name}",
            _Kind("i1", self.kind[1]),
        )

    def choose(self, yes: _Value, no: _Value) -> _Value:
        """One of two values for each lane of a comparison."""
        return self._emit(f"select {self.kind} {self.name}, {yes.kind} {yes.name}, {no.kind} {no.name}", yes.kind)

    def convert(self, instruction: str, element: str) -> _Value:
        """The value in another type: bitcast, fpext, fptrunc, sitofp or trunc."""
        kind = _Kind(element, self.kind[1])
        return self._emit(f"{instruction} {self.kind} {self.name} to {kind}", kind)

    def intrinsic(self, name: str) -> _Value:
        """An intrinsic of LLVM that the processor computes: sqrt or fabs."""
        element, lanes = self.kind
        suffix = {"float": "f32", "double": "f64"}[element]
        suffix = suffix if lanes == 1 else f"v{lanes}{suffix}"
        return self._emit(f"call {self.kind} @llvm.{name}.{suffix}({self.kind} {self.name})")

    def times_power_of_two(self, exponent: _Value) -> _Value:
        """The value times 2 to an integer of the same type; only with AVX-512."""
        value = f"{self.kind} {self.name}"
        return self._emit(
            f"call {self.kind} @llvm.x86.avx512.mask.scalef.ps.512({value}, {self.kind} {exponent.name}, {value}, "
            "i16 -1, i32 4)"
        )

    def divided(self, divisor: _Value) -> _Value:
        """The quotient by a positive number without extremes; with AVX-512 a product with an approximate inverse.

        One step of Newton's method makes 24 bits of the 14 of the instruction, which takes a fifth of a division.
        """
        if not self.code.is_avx512:
            return self / divisor
        kind = self.kind
        start = divisor._emit(
            f"call {kind} @llvm.x86.avx512.rcp14.ps.512({kind} {divisor.name}, {kind} zeroinitializer, i16 -1)"
        )
        return self * (start * (1.0 - divisor * start) + start)

    def at_least(self, low: float) -> _Value:
        """The value, or a bound that it is below; NaN stays NaN."""
        return self.is_("olt", low).choose(self.constant(low), self)

    def clipped(self, low: float, high: float) -> _Value:
        """The value between two bounds; NaN stays NaN."""
        value = self.at_least(low)
        return value.is_("ogt", high).choose(value.constant(high), value)

    def polynomial(self, *coefficients: float) -> _Value:
        """Horner's scheme, the leading coefficient first."""
        result = self.constant(coefficients[0])
        for coefficient in coefficients[1:]:
            result = result * self + coefficient
        return result


def _exp(x: _Value) -> _Value:
    """From -104 to 89, outside of which the results are 0 and infinity."""
    return _exp_inside(x.clipped(_LOWEST, 89.0))


def _exp_inside(x: _Value) -> _Value:
    """As Cephes' ``expf`` a power of two, and a polynomial of the rest, of values from -104 to 89.

    The polynomial has the least largest relative error, 3e-9, of those of its degree up to log(2) / 2.
    """
    # The sum is rounded to an integer, which is then in its low bits.
    shifted = x * math.log2(math.e) + 12582912.0
    n = shifted - 12582912.0
    rest = x - n * 0.693359375 - n * -2.12194440e-4
    y = rest.polynomial(1.38144669e-3, 8.36878041e-3, 4.16683942e-2, 1.66665201e-1, 4.99999934e-1)
    y = y * (rest * rest) + rest + 1.0
    if x.code.is_avx512:
        return y.times_power_of_two(n)
    power = shifted.convert("bitcast", "i32") - 0x4B400000
    # In two steps, because the power of two may overflow where the result does not.
    half = power >> 1
    for part in (half, power - half):
        y = y * ((part + 127) << 23).convert("bitcast", "float")
    return y


def _sigmoid(x: _Value) -> _Value:
    """From the exponential of the negative absolute value, which neither overflows nor loses small results."""
    small = _exp_inside((-x.intrinsic("fabs")).at_least(_LOWEST))
    return x.is_("olt", 0.0).choose(small, small.constant(1.0)).divided(small + 1.0)


def _odd_rational(x: _Value, bound: float, above: Sequence[float], below: Sequence[float]) -> _Value:
    """``x`` times a quotient of polynomials of its square.

    The polynomials are scaled so that the last coefficient of ``below`` is 1, which keeps denormal numbers.
    """
    x = x.clipped(-bound, bound)
    square = x * x
    numerator, denominator = (
        square.polynomial(*(coefficient / below[-1] for coefficient in coefficients)) for coefficients in (above, below)
    )
    return (x * numerator).divided(denominator)


def _tanh(x: _Value) -> _Value:
    """Eigen's ``ptanh_float``."""
    above = (
        *(-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08),
        *(1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03),
    )
    below = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
    return _odd_rational(x, 7.90531110763549805, above, below)


def _erf(x: _Value) -> _Value:
    """Eigen's ``erf`` of its releases before 2024."""
    above = (
        *(-2.72614225801306e-10, 2.77068142495902e-08, -2.10102402082508e-06, -5.69250639462346e-05),
        *(-7.34990630326855e-04, -2.95459980854025e-03, -1.60960333262415e-02),
    )
    below = (
        *(-1.45660718464996e-05, -2.13374055278905e-04, -1.68282697438203e-03, -7.37332916720468e-03),
        -1.42647390514189e-02,
    )
    return _odd_rational(x, 4.0, above, below)


def _log(x: _Value) -> _Value:
    """Cephes' ``logf``: the exponent, and a polynomial of the mantissa, from sqrt(1/2) to sqrt(2), less 1."""
    is_denormal = x.is_("olt", 2.0**-126)
    bits = is_denormal.choose(x * 2.0**23, x).convert("bitcast", "i32")
    shifted = bits - 0x3F3504F3  # sqrt(1/2)
    exponent = (shifted >> 23) - is_denormal.choose(shifted.constant(23), shifted.constant(0))
    n = exponent.convert("sitofp", "float")
    f = ((shifted & 0x007FFFFF) + 0x3F3504F3).convert("bitcast", "float") - 1.0
    square = f * f
    tail = f.polynomial(
        *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1),
        *(-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
    )
    result = f + (tail * f * square + n * -2.12194440e-4 - square * 0.5) + n * 0.693359375
    result = x.is_("olt", math.inf).choose(result, x)  # infinity and NaN
    result = x.is_("oeq", 0.0).choose(x.constant(-math.inf), result)
    return x.is_("olt", 0.0).choose(x.constant(math.nan), result)


def _sin(x: _Value, quarters: int = 0) -> _Value:
    """Cephes' ``sinf`` of ``x`` plus quarter turns, but with the rest of a quarter turn computed in float64.

    NaN from 2**51 on, where rounding to a quarter turn fails.
    """
    exact = x.convert("fpext", "double")
    shifted = exact * (2 / math.pi) + 1.5 * 2.0**52
    n = shifted - 1.5 * 2.0**52
    rest = exact - n * (math.pi / 2) - n * 6.123233995736766e-17
    rest = exact.intrinsic("fabs").is_("olt", 2.0**51).choose(rest, rest.constant(math.nan)).convert("fptrunc", "float")
    quadrant = shifted.convert("bitcast", "i64").convert("trunc", "i32") + quarters
    square = rest * rest
    sine = rest * (square.polynomial(-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1) * square + 1.0)
    cosine = square.polynomial(2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2, -0.5, 1.0)
    result = (quadrant & 1).is_("eq", 0).choose(sine, cosine)
    return (quadrant & 2).is_("eq", 0).choose(result, -result)


def _power(exponent: int) -> Callable[[_Value], _Value]:
    def rule(x: _Value) -> _Value:
        base = x if exponent >= 0 else 1.0 / x
        result, left = x.constant(1.0), abs(exponent)
        while left:
            if left & 1:
                result = result * base
            base, left = base * base, left >> 1
        return result

    return rule


def _inverse_root(x: _Value) -> _Value:
    """The power -0.5, which is positive for -0, and 0 for minus infinity."""
    return x.is_("oeq", -math.inf).choose(x.constant(0.0), 1.0 / (x + 0.0).intrinsic("sqrt"))


#: Name of a function of TensorIR, or "pow" and a constant exponent -> how it is computed in float32.
_RULES: dict[str, Callable[[_Value], _Value]] = {
    "exp": _exp,
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "erf": _erf,
    "log": _log,
    "sin": _sin,
    "cos": lambda x: _sin(x, 1),
    "pow -0.5": _inverse_root,
    # Each multiplication adds a rounding.
    **{f"pow {exponent}": _power(exponent) for exponent in range(-4, 9)},
}
