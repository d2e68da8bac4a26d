"""Expands activations, norms and embeddings that ONNX Runtime's optimizer fused."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tvm_gnn_cost.importing.microsoft.writer import Writer, channels_last, written
from tvm_gnn_cost.importing.simplify import Expansion, Refused


def _gelu(write: Writer) -> Any:
    return write("Gelu", write.plus(write.tensor(0), 1))


def _fast_gelu(write: Writer) -> Any:
    return write("Gelu", write.plus(write.tensor(0), 1), approximate="tanh")


def _quick_gelu(write: Writer) -> Any:
    x = write.tensor(0)
    share = write("Sigmoid", write("Mul", x, write.number(write.attribute("alpha", 1.702), x)))
    return write("Mul", x, share)


def _matmul(write: Writer) -> Any:
    left, right = (
        _turned(
            write, write.tensor(i), bool(write.attribute(f"transBatch{name}")), bool(write.attribute(f"trans{name}"))
        )
        for i, name in enumerate("AB")
    )
    alpha = write.attribute("alpha", 1.0)
    result = write("MatMul", left, right)
    return result if alpha == 1 else write("Mul", result, write.number(alpha, result))


def _turned(write: Writer, value: Any, is_batch_moved: bool, is_swapped: bool) -> Any:
    """A matrix that may be transposed, or have its first axis before the batch axes."""
    order = list(range(len(value.shape)))
    if len(order) < 2:
        return value
    if is_batch_moved:
        order = [*order[1:-1], order[0], order[-1]]
    if is_swapped:
        order = [*order[:-2], order[-1], order[-2]]
    return value if order == sorted(order) else write("Transpose", value, perm=order)


def _activated(write: Writer, value: Any, operator: str, parameters: Sequence[float]) -> Any:
    """Applies the activation that was fused into an operator."""
    if not operator:
        return value
    if operator == "Clip":
        low, high = (write.number(parameter, value) for parameter in parameters)
        return write("Clip", value, low, high)
    names = {"Relu": (), "Sigmoid": (), "Tanh": (), "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta")}
    if operator not in names:
        raise Refused(f"its activation is {operator}")
    return write(operator, value, **dict(zip(names[operator], parameters, strict=False)))


def _conv(write: Writer) -> Any:
    known = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")
    attributes = {name: value for name, value in write.call.attributes.items() if name in known}
    output = write.plus(write("Conv", write.tensor(0), write.tensor(1), write.call.input(2), **attributes), 3)
    return _activated(write, output, write.attribute("activation", ""), write.attribute("activation_params", ()))


def _gemm(write: Writer) -> Any:
    attributes = {
        name: value for name, value in write.call.attributes.items() if name in ("alpha", "beta", "transA", "transB")
    }
    product = write("Gemm", write.tensor(0), write.tensor(1), write.call.input(2), **attributes)
    parameters = [write.attribute(name) for name in ("activation_alpha", "activation_beta")]
    given = [parameter for parameter in parameters if parameter is not None]
    return _activated(write, product, write.attribute("activation", ""), given)


def _normalized(write: Writer, value: Any, scale: Any, shift: Any, axis: int, epsilon: float, rms: bool) -> Any:
    """A layer norm or RMS norm."""
    if not rms:
        return write("LayerNormalization", value, scale, shift, axis=axis, epsilon=epsilon)
    axes = np.arange(axis % len(value.shape), len(value.shape))
    wide = write.cast(value, np.float32)
    mean = write("ReduceMean", write("Mul", wide, wide), axes)
    factor = write("Reciprocal", write("Sqrt", write("Add", mean, np.array(epsilon, np.float32))))
    return write("Mul", write.cast(write("Mul", wide, factor), value.dtype), scale)


def _layer_norm(write: Writer) -> Any:
    axis, epsilon = write.attribute("axis", -1), write.attribute("epsilon", 1e-5)
    if any(write.call.node.output[1:]):
        raise Refused("its mean and deviation are used")
    rms = write.call.node.op_type.startswith("Simplified")
    return _normalized(write, write.tensor(0), write.tensor(1), write.call.input(2), axis, epsilon, rms)


def _skip_layer_norm(write: Writer) -> Any:
    rms = "Simplified" in write.call.node.op_type
    added = write.plus(write("Add", write.tensor(0), write.tensor(1)), 3 if rms else 4)
    shift = None if rms else write.call.input(3)
    normalized = _normalized(write, added, write.tensor(2), shift, -1, write.attribute("epsilon", 1e-12), rms)
    if any(write.call.node.output[1:3]):
        raise Refused("its mean and deviation are used")
    return [normalized, None, None, added]


def _embedding(write: Writer) -> Any:
    return _embedded(write, write.call.inputs)


def _quantized_embedding(write: Writer) -> Any:
    tables = [
        write("DequantizeLinear", write.tensor(i), write.tensor(i + 6), write.tensor(i + 11)) if write.has(i) else None
        for i in range(2, 7)
    ]
    return _embedded(write, (write.tensor(0), write.call.input(1), *tables, write.call.input(7)))


def _embedded(write: Writer, operands: Sequence[Any]) -> Any:
    """The sum of word, position and segment embeddings, and its layer norm."""
    words, segments, table, positions, kinds, scale, shift, mask, places = (*operands, None, None)[:9]
    batch, length = words.shape
    embedding = write("Gather", table, words, axis=0)
    if places is None:
        embedding = write("Add", embedding, write("Gather", positions, np.arange(length), axis=0))
    else:
        embedding = write("Add", embedding, write("Gather", positions, places, axis=0))
    if segments is not None:
        embedding = write("Add", embedding, write("Gather", kinds, segments, axis=0))
    normed = _normalized(write, embedding, scale, shift, -1, write.attribute("epsilon", 1e-12), False)
    if mask is None:
        count: Any = np.zeros(batch, np.int32)
    else:
        count = write("ReduceSum", mask, np.array([1]), keepdims=0)
    return [normed, count, embedding]


def _max_pool(write: Writer) -> Any:
    attributes = dict(write.call.attributes)
    return channels_last(write, write.tensor(0), lambda value: write("MaxPool", value, **attributes), True)


def _same(operator: str) -> Callable[[Writer], Any]:
    """An operator that also exists in ONNX."""

    def write_it(write: Writer) -> Any:
        return write(operator, *write.call.inputs, **write.call.attributes)

    return write_it


_WRITTEN: dict[str, Callable[[Writer], Any]] = {
    "BiasGelu": _gelu,
    "DequantizeLinear": _same("DequantizeLinear"),
    "EmbedLayerNormalization": _embedding,
    "ExpandDims": lambda write: write("Unsqueeze", write.tensor(0), write.call.constant(1, "axis").astype(np.int64)),
    "FastGelu": _fast_gelu,
    "FusedConv": _conv,
    "FusedGemm": _gemm,
    "FusedMatMul": _matmul,
    "Gelu": _gelu,
    "LayerNormalization": _layer_norm,
    "NhwcMaxPool": _max_pool,
    "Pad": _same("Pad"),
    "QEmbedLayerNormalization": _quantized_embedding,
    "QuantizeLinear": _same("QuantizeLinear"),
    "QuickGelu": _quick_gelu,
    "SimplifiedLayerNormalization": _layer_norm,
    "SkipLayerNormalization": _skip_layer_norm,
    "SkipSimplifiedLayerNormalization": _skip_layer_norm,
    "TransposeMatMul": _matmul,
    "Trilu": _same("Trilu"),
}

#: Operator -> its expansion.
EXPANSIONS: dict[str, Expansion] = {f"com.microsoft:{name}": written(write) for name, write in _WRITTEN.items()}
