"""Expands quantized operators to integer and float arithmetic.

A real number r is stored as an integer q, with r = (q - zero point) * scale. Values are rounded half to even, and
saturate.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import helper

from tvm_gnn_cost.importing.graph import Tensor
from tvm_gnn_cost.importing.simplify import Call, Expansion, Refused, Simplifier, Value

#: The ONNX operator set of the expansions.
_OPSET = 18

_FLOAT32 = np.dtype(np.float32)

#: Quantized types.
_STORED = tuple(np.dtype(item) for item in (np.int8, np.uint8, np.int16, np.uint16))


class _Writer:
    """Expands one operator.

    Args:
        simplifier: Receives the operators.
        call: The operator.
    """

    def __init__(self, simplifier: Simplifier, call: Call) -> None:
        self.simplifier, self.call = simplifier, call

    def emit(self, operator: str, *inputs: Any, **attributes: Any) -> Any:
        """Adds an operator."""
        return self.simplifier.emit(operator, *inputs, name=self.call.name, **attributes)

    def operand(self, position: int) -> Any:
        """A required operand."""
        value = self.call.input(position)
        if not isinstance(value, Tensor | np.ndarray):
            raise Refused(f"its input {position} is not a tensor")
        return value

    def cast(self, value: Any, dtype: Any) -> Any:
        """Casts a value."""
        wanted = np.dtype(dtype)
        if value.dtype == wanted:
            return value
        return self.emit("Cast", value, to=helper.np_dtype_to_tensor_dtype(wanted))

    def reshaped(self, value: Any, shape: Sequence[int]) -> Any:
        """Reshapes a value."""
        return value if value.shape == tuple(shape) else self.emit("Reshape", value, np.array(shape, np.int64))

    def spread(self, value: Any, shape: Sequence[int], axis: int, block: int) -> Any:
        """A scale or zero point, reshaped so that it broadcasts to its tensor."""
        count = int(np.prod(value.shape))
        if len(value.shape) == len(shape) and block:
            place = axis % len(shape)
            along = np.arange(shape[place]) // block
            return self.emit("Gather", value, along, axis=place)
        if count == 1:
            return self.reshaped(value, ())
        if len(value.shape) != 1:
            raise Refused(f"its scale has the shape {value.shape}")
        return self.reshaped(value, (count, *[1] * (len(shape) - 1 - axis % len(shape))))

    def stored(self, real: Any, zero: Any, dtype: np.dtype[Any]) -> Any:
        """Quantizes a value that is divided by the scale; the zero point None is 0."""
        if dtype not in _STORED:
            raise Refused(f"type {dtype} is not supported")
        bounds = np.iinfo(dtype)
        output = self.emit("Round", real)
        if _unless_zero(zero) is not None:
            output = self.emit("Add", output, self.cast(zero, output.dtype))
        low, high = (np.array(item, output.dtype) for item in (bounds.min, bounds.max))
        return self.cast(self.emit("Clip", output, low, high), dtype)

    def requantized(self, total: Any, factor: Any, zero: Any, dtype: np.dtype[Any]) -> Any:
        """Requantizes an int32 sum: multiplied by the product of the scales."""
        return self.stored(self.emit("Mul", self.cast(total, _FLOAT32), factor), zero, dtype)

    def factor(self, left: Any, right: Any, result: Any) -> Any:
        """The scale of a product divided by the result's scale."""
        product = self.emit("Mul", self.cast(left, _FLOAT32), self.cast(right, _FLOAT32))
        return self.emit("Div", product, self.cast(result, _FLOAT32))


def _unless_zero(point: Any) -> Any:
    """A zero point; None for a constant 0."""
    return None if isinstance(point, np.ndarray) and not point.any() else point


def quantize(simplifier: Simplifier, call: Call) -> Sequence[Value]:
    """``QuantizeLinear``."""
    with simplifier.at_opset(_OPSET):
        writer = _Writer(simplifier, call)
        x, scale, zero = writer.operand(0), writer.operand(1), call.input(2)
        wanted = int(call.attributes.get("output_dtype") or 0)
        if isinstance(zero, Tensor | np.ndarray):
            dtype = np.dtype(zero.dtype)
        else:
            dtype = np.dtype(helper.tensor_dtype_to_np_dtype(wanted)) if wanted else np.dtype(np.uint8)
        axis, block = int(call.attributes.get("axis", 1)), int(call.attributes.get("block_size", 0))
        parameters = [
            writer.spread(item, x.shape, axis, block) if isinstance(item, Tensor | np.ndarray) else None
            for item in (scale, zero)
        ]
        real = writer.emit("Div", writer.cast(x, _FLOAT32), writer.cast(parameters[0], _FLOAT32))
        precision = int(call.attributes.get("precision") or 0)
        rounded = helper.tensor_dtype_to_np_dtype(precision) if precision else np.dtype(scale.dtype)
        if call.version >= 23 and rounded.itemsize == 2:
            # The quotient has the scale's type.
            real = writer.cast(writer.cast(real, rounded), _FLOAT32)
        return [writer.stored(real, parameters[1], dtype)]


def dequantize(simplifier: Simplifier, call: Call) -> Sequence[Value]:
    """``DequantizeLinear``."""
    with simplifier.at_opset(_OPSET):
        writer = _Writer(simplifier, call)
        x, scale, zero = writer.operand(0), writer.operand(1), call.input(2)
        if np.dtype(x.dtype) not in (*_STORED, np.dtype(np.int32)):
            raise Refused(f"type {x.dtype} is not supported")
        axis, block = int(call.attributes.get("axis", 1)), int(call.attributes.get("block_size", 0))
        wanted = int(call.attributes.get("output_dtype") or 0)
        dtype = helper.tensor_dtype_to_np_dtype(wanted) if wanted else scale.dtype
        # Differences of 16 bits are exact in float32.
        real = writer.cast(x, np.int32 if np.dtype(x.dtype) == np.int32 else _FLOAT32)
        if _unless_zero(zero) is not None:
            real = writer.emit("Sub", real, writer.cast(writer.spread(zero, x.shape, axis, block), real.dtype))
        factor = writer.cast(writer.spread(scale, x.shape, axis, block), _FLOAT32)
        return [writer.cast(writer.emit("Mul", writer.cast(real, _FLOAT32), factor), dtype)]


def dynamic_quantize(simplifier: Simplifier, call: Call) -> Sequence[Value]:
    """``DynamicQuantizeLinear``: uint8, with scale and zero point from the range of the values."""
    with simplifier.at_opset(_OPSET):
        writer = _Writer(simplifier, call)
        x, zero = writer.operand(0), np.zeros((), np.float32)
        low = writer.emit("Min", zero, writer.emit("ReduceMin", x, keepdims=0))
        high = writer.emit("Max", zero, writer.emit("ReduceMax", x, keepdims=0))
        width = writer.emit("Div", writer.emit("Sub", high, low), np.array(255, np.float32))
        # A tensor of zeros has no range.
        scale = writer.emit("Where", writer.emit("Equal", width, zero), np.ones((), np.float32), width)
        shift = writer.emit("Div", writer.emit("Sub", zero, low), scale)
        point = writer.stored(shift, None, np.dtype(np.uint8))
        return [writer.stored(writer.emit("Div", x, scale), point, np.dtype(np.uint8)), scale, point]


def linear_product(simplifier: Simplifier, call: Call) -> Sequence[Value]:
    """``QLinearMatMul``."""
    with simplifier.at_opset(_OPSET):
        writer = _Writer(simplifier, call)
        left, left_scale, left_zero, right, right_scale, right_zero, scale, zero = (writer.operand(i) for i in range(8))
        total = writer.emit("MatMulInteger", left, right, _unless_zero(left_zero), _unless_zero(right_zero))
        rows, columns = (writer.operand(i) for i in (1, 4))
        if len(rows.shape) == 1 and rows.shape[0] > 1:
            left_scale = writer.reshaped(rows, (rows.shape[0], 1))
        elif len(rows.shape) == 1:
            left_scale = writer.reshaped(rows, ())
        if columns.shape == (1,):
            right_scale = writer.reshaped(columns, ())
        if int(np.prod(scale.shape)) != 1 or int(np.prod(zero.shape)) != 1:
            raise Refused("its result has more than one scale")
        factor = writer.factor(left_scale, right_scale, writer.reshaped(scale, ()))
        return [writer.requantized(total, factor, writer.reshaped(zero, ()), np.dtype(zero.dtype))]


def linear_convolution(simplifier: Simplifier, call: Call) -> Sequence[Value]:
    """``QLinearConv``."""
    with simplifier.at_opset(_OPSET):
        writer = _Writer(simplifier, call)
        x, x_scale, x_zero, w, w_scale, w_zero, scale, zero = (writer.operand(i) for i in range(8))
        names = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
        given = {name: call.attributes[name] for name in names if call.attributes.get(name) is not None}
        total = writer.emit("ConvInteger", x, w, _unless_zero(x_zero), _unless_zero(w_zero), **given)
        channels, rest = int(w.shape[0]), [1] * (len(x.shape) - 2)
        if call.input(8) is not None:
            total = writer.emit("Add", total, writer.reshaped(writer.operand(8), (channels, *rest)))
        factor = writer.factor(writer.reshaped(x_scale, ()), w_scale, writer.reshaped(scale, ()))
        factor = writer.reshaped(factor, (channels, *rest) if int(np.prod(factor.shape)) > 1 else ())
        return [writer.requantized(total, factor, writer.reshaped(zero, ()), np.dtype(zero.dtype))]


#: Operator -> its expansion.
EXPANSIONS: dict[str, Expansion] = {
    "DequantizeLinear": dequantize,
    "DynamicQuantizeLinear": dynamic_quantize,
    "QLinearConv": linear_convolution,
    "QLinearMatMul": linear_product,
    "QuantizeLinear": quantize,
}
