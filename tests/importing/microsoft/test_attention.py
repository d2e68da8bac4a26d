from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.importing.relax.against_onnxruntime import check

RNG = np.random.default_rng(0)
DOMAINS = {"com.microsoft": 1}


def drawn(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    "mask", [None, [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], [3, 5], np.tri(5)[None].repeat(2, 0)], ids=str
)
@pytest.mark.parametrize("is_causal", [0, 1])
def test_self_attention(mask: Any, is_causal: int) -> None:
    inputs = {"x": drawn(2, 5, 8)} | ({} if mask is None else {"m": np.array(mask, np.int32)})
    names = ["x", "w", "b", *(["m"] if mask is not None else [])]
    node = helper.make_node("Attention", names, ["y"], domain="com.microsoft", num_heads=2, unidirectional=is_causal)
    check(node, inputs, constants={"w": drawn(8, 24), "b": drawn(24)}, domains=DOMAINS, opset=17, rtol=1e-4, atol=1e-5)


def test_values_of_another_width() -> None:
    node = helper.make_node(
        "Attention", ["x", "w", "b"], ["y"], domain="com.microsoft", num_heads=2, qkv_hidden_sizes=[8, 8, 4]
    )
    weights = {"w": drawn(8, 20), "b": drawn(20)}
    check(node, {"x": drawn(2, 5, 8)}, constants=weights, domains=DOMAINS, opset=17, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("columns", [(), (24,)])
def test_attention_on_integers(columns: tuple[int, ...]) -> None:
    inputs = {"x": RNG.integers(0, 256, (2, 5, 8)).astype(np.uint8), "mask": np.array([3, 5], np.int32)}
    weights = {
        "w": RNG.integers(-128, 128, (8, 24)).astype(np.int8),
        "b": drawn(24),
        "xs": np.array(0.01, np.float32),
        "ws": RNG.uniform(0.005, 0.01, columns).astype(np.float32),
        "xz": np.array(120, np.uint8),
        "wz": np.zeros(columns, np.int8),
    }
    names = ["x", "w", "b", "xs", "ws", "mask", "xz", "wz"]
    node = helper.make_node("QAttention", names, ["y"], domain="com.microsoft", num_heads=2)
    check(node, inputs, constants=weights, domains=DOMAINS, opset=17, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"bias": drawn(24)},
        {"mask": RNG.integers(0, 2, (2, 6)).astype(np.int32)},
        {"added": drawn(1, 2, 5, 6)},
        {"past_key": drawn(2, 2, 3, 4), "past_value": drawn(2, 2, 3, 4)},
    ],
    ids=lambda item: "-".join(item),
)
def test_attention_of_heads(more: dict[str, Any]) -> None:
    order = ["query", "key", "value", "bias", "mask", "added", "past_key", "past_value"]
    inputs = {"query": drawn(2, 5, 8), "key": drawn(2, 6, 8), "value": drawn(2, 6, 8)} | more
    names = [name if name in inputs else "" for name in order]
    outputs = ["y", "k", "v"] if "past_key" in more else ["y"]
    node = helper.make_node("MultiHeadAttention", names, outputs, domain="com.microsoft", num_heads=2)
    check(node, inputs, domains=DOMAINS, opset=17, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(interleaved: int) -> None:
    names = ["x", "places", "cos", "sin"]
    node = helper.make_node("RotaryEmbedding", names, ["y"], domain="com.microsoft", interleaved=interleaved)
    inputs = {"x": drawn(2, 3, 5, 8), "places": np.array([2])}
    check(node, inputs, constants={"cos": drawn(10, 4), "sin": drawn(10, 4)}, domains=DOMAINS, opset=17)
