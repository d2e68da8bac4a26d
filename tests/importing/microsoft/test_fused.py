from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper

from tests.importing.relax.against_onnxruntime import check
from tvm_gnn_cost.errors import InputError

RNG = np.random.default_rng(0)
IDS = {"ids": RNG.integers(0, 20, (2, 5)).astype(np.int32), "kinds": RNG.integers(0, 2, (2, 5)).astype(np.int32)}


def drawn(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "gelu": ("Gelu", {"x": drawn(3, 4)}, {}, {}),
    "gelu with bias": ("BiasGelu", {"x": drawn(3, 4)}, {"b": drawn(4)}, {}),
    "gelu by tanh": ("FastGelu", {"x": drawn(3, 4)}, {"b": drawn(4)}, {}),
    "gelu by sigmoid": ("QuickGelu", {"x": drawn(3, 4)}, {}, {"alpha": 1.5}),
    "product": (
        "FusedMatMul",
        {"x": drawn(2, 4, 3), "y": drawn(2, 5, 4)},
        {},
        {"transA": 1, "transB": 1, "alpha": 0.5},
    ),
    "dense and relu": ("FusedGemm", {"x": drawn(3, 4)}, {"w": drawn(4, 5), "b": drawn(5)}, {"activation": "Relu"}),
    "root mean square": ("SkipSimplifiedLayerNormalization", {"x": drawn(3, 8), "s": drawn(3, 8)}, {"g": drawn(8)}, {}),
    "layer norm": (
        "SkipLayerNormalization",
        {"x": drawn(2, 3, 8), "s": drawn(2, 3, 8)},
        {"g": drawn(8), "b": drawn(8), "c": drawn(8)},
        {"epsilon": 1e-3},
    ),
    "pooling": ("NhwcMaxPool", {"x": np.uint8(RNG.integers(0, 256, (1, 6, 6, 3)))}, {}, {"kernel_shape": [3, 3]}),
    "new axis": ("ExpandDims", {"x": drawn(2, 3)}, {"axis": np.array(1, np.int32)}, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_operators(name: str) -> None:
    operator, inputs, weights, attributes = CASES[name]
    node = helper.make_node(operator, [*inputs, *weights], ["out"], domain="com.microsoft", **attributes)
    check(node, inputs, constants=weights, opset=17, domains={"com.microsoft": 1}, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("activation", "parameters"),
    [("Relu", []), ("LeakyRelu", [0.2]), ("Clip", [-1.0, 1.0]), ("HardSigmoid", [0.3, 0.4])],
)
def test_convolutions_with_an_activation(activation: str, parameters: list[float]) -> None:
    weights = {"w": drawn(4, 3, 3, 3), "b": drawn(4)}
    attributes = {"activation": activation} | ({"activation_params": parameters} if parameters else {})
    node = helper.make_node("FusedConv", ["x", "w", "b"], ["y"], domain="com.microsoft", **attributes)
    inputs = {"x": drawn(1, 3, 8, 8)}
    check(node, inputs, constants=weights, opset=17, domains={"com.microsoft": 1}, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("is_swapped", [0, 1])
@pytest.mark.parametrize("is_moved", [0, 1])
def test_matrices_in_another_order(is_swapped: int, is_moved: int) -> None:
    shapes = {(0, 0): (2, 3, 4, 6), (0, 1): (4, 2, 3, 6), (1, 0): (2, 3, 6, 4), (1, 1): (6, 2, 3, 4)}
    attributes = {"transA": is_swapped, "transBatchA": is_moved}
    node = helper.make_node("FusedMatMul", ["x", "y"], ["z"], domain="com.microsoft", **attributes)
    inputs = {"x": drawn(*shapes[is_swapped, is_moved]), "y": drawn(2, 3, 6, 5)}
    check(node, inputs, opset=17, domains={"com.microsoft": 1}, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mask", [None, [[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]])
def test_embeddings(mask: Any) -> None:
    weights = {"w": drawn(20, 8), "p": drawn(10, 8), "k": drawn(2, 8), "g": drawn(8), "b": drawn(8)}
    inputs = IDS | ({} if mask is None else {"mask": np.array(mask, np.int32)})
    names = [*IDS, *weights, *(["mask"] if mask else [])]
    node = helper.make_node("EmbedLayerNormalization", names, ["y", "count", "sum"], domain="com.microsoft")
    check(node, inputs, constants=weights, opset=17, domains={"com.microsoft": 1}, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("operator", ["LayerNormalization", "SimplifiedLayerNormalization"])
def test_norms_in_older_operator_sets_of_onnx(operator: str) -> None:
    node = helper.make_node(operator, ["x", "g"], ["y"], epsilon=1e-5)
    check(node, {"x": drawn(2, 8)}, constants={"g": drawn(8)}, opset=11, rtol=1e-4, atol=1e-5)


def test_other_uses_are_refused() -> None:
    node = helper.make_node("FusedConv", ["x", "w"], ["y"], domain="com.microsoft", activation="Mish")
    with pytest.raises(InputError, match=r"FusedConv \('y'\): its activation is Mish"):
        check(node, {"x": drawn(1, 3, 8, 8)}, constants={"w": drawn(4, 3, 3, 3)}, wanted=[])
