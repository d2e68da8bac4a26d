"""Expands the quantized operators of ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.importing.microsoft.writer import Writer, channels_last, written
from tvm_gnn_cost.importing.simplify import Expansion, Refused


def _binary(operator: str) -> Callable[[Writer], Any]:
    def write_it(write: Writer) -> Any:
        return write.quantized(write(operator, write.dequantized(0), write.dequantized(3)), 6)

    return write_it


def _unary(operator: str, *names: str) -> Callable[[Writer], Any]:
    def write_it(write: Writer) -> Any:
        attributes = {name: write.attribute(name) for name in names if write.attribute(name) is not None}
        return write.quantized(write(operator, write.dequantized(0), **attributes), 3)

    return write_it


def _pool(write: Writer) -> Any:
    operator = write.call.node.op_type.removeprefix("QLinear")
    names = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
    attributes = {name: write.attribute(name) for name in names if write.attribute(name) is not None}
    x = write.dequantized(0)
    result = channels_last(
        write, x, lambda value: write(operator, value, **attributes), write.attribute("channels_last")
    )
    return write.quantized(result, 3)


def _concat(write: Writer) -> Any:
    parts = [write.dequantized(i) for i in range(2, len(write.call.inputs), 3)]
    return write.quantized(write("Concat", *parts, axis=write.attribute("axis")), 0)


def _where(write: Writer) -> Any:
    return write.quantized(write("Where", write.tensor(0), write.dequantized(1), write.dequantized(4)), 7)


def _quantized_gemm(write: Writer) -> Any:
    names = ("alpha", "transA", "transB")
    attributes = {name: write.attribute(name) for name in names if write.attribute(name) is not None}
    left = write.dequantized(0)
    axis = 0 if write.attribute("transB") else 1
    right = write("DequantizeLinear", *(write.tensor(i) for i in (3, 4, 5)), axis=axis)
    output = write("Gemm", left, right, **attributes)
    if write.has(6):
        scale = write("Mul", write.tensor(1), write.tensor(4))
        added = write("Mul", write.cast(write.tensor(6), np.float32), scale)
        alpha = write.attribute("alpha", 1.0)
        output = write("Add", output, added if alpha == 1 else write("Mul", added, np.array(alpha, np.float32)))
    return write.quantized(output, 7) if write.has(7) else output


def integer_product(write: Writer, left: Any, left_zero: Any, left_scale: Any, places: Sequence[int]) -> Any:
    """The dequantized integer product; ``places`` are the positions of B, its scale, its zero point and the bias."""
    right, scale, zero, bias = places
    product = write("MatMulInteger", left, write.tensor(right), left_zero, write.call.input(zero))
    factor = write("Mul", left_scale, write.tensor(scale))
    return write.plus(write("Mul", write.cast(product, np.float32), factor), bias)


def _dynamic_matmul(write: Writer) -> Any:
    left, scale, zero = write.simplifier.emit("DynamicQuantizeLinear", write.tensor(0), outputs=3, name=write.call.name)
    return integer_product(write, left, zero, scale, (1, 2, 3, 4))


def _matmul_to_float(write: Writer) -> Any:
    return integer_product(write, write.tensor(0), write.call.input(4), write.tensor(2), (1, 3, 5, 6))


def _matmul_of_bits(write: Writer) -> Any:
    bits, block = int(write.attribute("bits", 4)), int(write.attribute("block_size"))
    rows, columns = int(write.attribute("K")), int(write.attribute("N"))
    if write.has(4) or bits not in (2, 4, 8):
        raise Refused("its weights are reordered, or have other bit widths than 2, 4 or 8")
    weights, scales = write.call.constant(1, "weights"), write.call.constant(2, "scales")
    blocks = -(-rows // block)
    numbers = _unpacked(weights.reshape(columns, blocks, -1), bits)[..., :block].astype(np.float32)
    zero: Any = np.float32(2 ** (bits - 1))
    if write.has(3):
        zero = write.call.constant(3, "zero points")
        if zero.dtype == np.uint8:
            zero = _unpacked(zero.reshape(columns, -1), bits)[:, :blocks]
        zero = zero.reshape(columns, blocks, 1).astype(np.float32)
    whole = (numbers - zero) * scales.reshape(columns, blocks, 1).astype(np.float32)
    matrix = whole.reshape(columns, blocks * block)[:, :rows].T.astype(write.tensor(0).dtype)
    return write.plus(write("MatMul", write.tensor(0), np.ascontiguousarray(matrix)), 5)


def _unpacked(values: npt.NDArray[Any], bits: int) -> npt.NDArray[Any]:
    """Unpacks numbers of a few bits from bytes, lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return np.asarray((values[..., None] >> shifts) & (2**bits - 1)).reshape(*values.shape[:-1], -1)


_WRITTEN: dict[str, Callable[[Writer], Any]] = {
    "DynamicQuantizeMatMul": _dynamic_matmul,
    "MatMulIntegerToFloat": _matmul_to_float,
    "MatMulNBits": _matmul_of_bits,
    "QGemm": _quantized_gemm,
    "QLinearAdd": _binary("Add"),
    "QLinearAveragePool": _pool,
    "QLinearConcat": _concat,
    "QLinearGlobalAveragePool": _pool,
    "QLinearLeakyRelu": _unary("LeakyRelu", "alpha"),
    "QLinearMul": _binary("Mul"),
    "QLinearSigmoid": _unary("Sigmoid"),
    "QLinearSoftmax": _unary("Softmax", "axis"),
    "QLinearWhere": _where,
}

#: Operator -> its expansion.
EXPANSIONS: dict[str, Expansion] = {f"com.microsoft:{name}": written(write) for name, write in _WRITTEN.items()}
