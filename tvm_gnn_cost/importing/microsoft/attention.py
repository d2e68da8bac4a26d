"""Expands the attention operators of ONNX Runtime's optimizer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tvm_gnn_cost.importing.microsoft.quantized import integer_product
from tvm_gnn_cost.importing.microsoft.writer import Writer, written
from tvm_gnn_cost.importing.simplify import Expansion, Refused


def _attention(write: Writer) -> Any:
    if any(write.has(i) for i in (4, 6)) or write.attribute("do_rotary"):
        raise Refused("it has a past or rotary embeddings")
    heads = int(write.attribute("num_heads"))
    result = write.plus(write("MatMul", write.tensor(0), write.tensor(1)), 2)
    return _attended_together(write, result, heads, write.call.input(3), write.call.input(5))


def _quantized_attention(write: Writer) -> Any:
    if write.has(8) or write.attribute("do_rotary"):
        raise Refused("it has a past or rotary embeddings")
    projected = integer_product(write, write.tensor(0), write.call.input(6), write.tensor(3), (1, 4, 7, 2))
    return _attended_together(write, projected, int(write.attribute("num_heads")), write.call.input(5), None)


def _attended_together(write: Writer, projected: Any, heads: int, mask: Any, bias: Any) -> Any:
    """Attention with concatenated query, key and value projections."""
    width = projected.shape[2]
    sizes = write.attribute("qkv_hidden_sizes") or [width // 3] * 3
    ends = np.cumsum([0, *sizes])
    parts = [write("Slice", projected, ends[i : i + 1], ends[i + 1 : i + 2], np.array([2], np.int64)) for i in range(3)]
    query, key, value = (_by_head(write, part, heads) for part in parts)
    added = [] if bias is None else [bias]
    if mask is not None:
        added.append(_mask(write, mask, query.dtype, key.shape[2]))
    return _attended(write, query, key, value, added, bool(write.attribute("unidirectional")))


def _by_head(write: Writer, value: Any, heads: int) -> Any:
    """Splits ``(batch, length, width)`` into ``(batch, heads, length, head width)``."""
    batch, length, width = value.shape
    return write("Transpose", write.reshaped(value, batch, length, heads, width // heads), perm=[0, 2, 1, 3])


def _mask(write: Writer, mask: Any, dtype: Any, length: int) -> Any:
    """The mask as a summand of the scores: 0 where it is 1, a large negative number elsewhere."""
    rank = len(mask.shape)
    if rank == 1:
        count = write.reshaped(mask, mask.shape[0], 1, 1, 1)
        kept = write("Less", np.arange(length, dtype=mask.dtype), count)
    elif rank in (2, 3):
        batch, *rows = mask.shape
        kept = write("Greater", write.reshaped(mask, batch, 1, *rows[:-1], *[1] * (3 - rank), rows[-1]),
                     write.number(0, mask))  # fmt: skip
    else:
        raise Refused(f"its mask has {rank} axes")
    low = np.array(write.attribute("mask_filter_value", -10000.0), dtype)
    return write("Where", kept, np.zeros((), dtype), low)


def _attended(write: Writer, query: Any, key: Any, value: Any, added: Sequence[Any], is_causal: bool) -> Any:
    """Scaled dot-product attention with summands of the scores; the heads are concatenated."""
    batch, heads, length, width = query.shape
    scale = write.attribute("scale", 0.0) or 1 / np.sqrt(width)
    scores = write("MatMul", write("Mul", query, write.number(scale, query)), write.swapped(key))
    for item in added:
        scores = write("Add", scores, item)
    if is_causal:
        total = key.shape[2]
        later = np.triu(np.ones((length, total), bool), total - length + 1)
        low = write.number(write.attribute("mask_filter_value", -10000.0), query)
        scores = write("Add", scores, np.where(later, low, write.number(0, query)))
    output = write("MatMul", write("Softmax", scores, axis=-1), value)
    return write.reshaped(write("Transpose", output, perm=[0, 2, 1, 3]), batch, length, heads * value.shape[3])


def _multi_head_attention(write: Writer) -> Any:
    heads = int(write.attribute("num_heads"))
    if len(write.tensor(0).shape) != 3 or not write.has(1) or not write.has(2):
        raise Refused("its query, key and value are packed")
    if any(write.has(i) for i in (8, 9)) or (len(write.call.node.output) > 3 and write.call.node.output[3]):
        raise Refused("it has a cache with a separate length, or returns its scores")
    parts = []
    width = 0
    for i in range(3):
        part = write.tensor(i)
        if len(part.shape) == 4:
            parts.append(part)
            continue
        size = part.shape[2]
        if write.has(3):
            ends = np.array([width]), np.array([width + size])
            part = write("Add", part, write("Slice", write.tensor(3), *ends))
        width += size
        parts.append(_by_head(write, part, heads))
    query, key, value = parts
    if write.has(6):
        key = write("Concat", write.tensor(6), key, axis=2)
        value = write("Concat", write.tensor(7), value, axis=2)
    added = [write.tensor(5)] if write.has(5) else []
    if write.has(4):
        added.append(_mask(write, write.tensor(4), query.dtype, key.shape[2]))
    attended = _attended(write, query, key, value, added, bool(write.attribute("unidirectional")))
    return [attended, key, value]


def _rotary(write: Writer) -> Any:
    x, places = write.tensor(0), write.tensor(1)
    if write.attribute("is_packed_batching") or write.attribute("scale", 1.0) != 1.0:
        raise Refused("it is packed or scaled")
    if len(places.shape) == 1:
        length = x.shape[1] if len(x.shape) == 3 else x.shape[2]
        places = write("Add", places, np.broadcast_to(np.arange(length), (x.shape[0], length)))
    names = ("interleaved", "num_heads", "rotary_embedding_dim")
    attributes = {name: value for name, value in write.call.attributes.items() if name in names}
    if len(x.shape) == 3 and not attributes.get("num_heads"):
        attributes["num_heads"] = x.shape[2] // (2 * write.tensor(2).shape[1])
    with write.simplifier.at_opset(23):
        return write("RotaryEmbedding", x, write.tensor(2), write.tensor(3), places, **attributes)


_WRITTEN: dict[str, Callable[[Writer], Any]] = {
    "Attention": _attention,
    "QAttention": _quantized_attention,
    "MultiHeadAttention": _multi_head_attention,
    "RotaryEmbedding": _rotary,
}

#: Operator -> its expansion.
EXPANSIONS: dict[str, Expansion] = {f"com.microsoft:{name}": written(write) for name, write in _WRITTEN.items()}
