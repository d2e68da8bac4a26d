from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.importing.graphs import computed
from tests.importing.relax.against_onnxruntime import model_of, reference
from tvm_gnn_cost.importing.batch_norm import affine, fold
from tvm_gnn_cost.importing.graph import Graph
from tvm_gnn_cost.importing.simplify import simplify

KEPT = ("Conv", "ConvTranspose", "Gemm", "BatchNormalization", "Add", "Sub", "Mul", "Div", "Relu")
RNG = np.random.default_rng(0)


def drawn(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


#: A producer of 6 channels, its input, and its constants.
PRODUCERS: dict[str, tuple[onnx.NodeProto, Any, dict[str, Any]]] = {
    "convolution": (
        helper.make_node("Conv", ["x", "w"], ["y"], group=2, pads=[1, 0, 2, 1]),
        drawn(2, 4, 6, 5),
        {"w": drawn(6, 2, 3, 2)},
    ),
    "depthwise, with a bias": (
        helper.make_node("Conv", ["x", "w", "b"], ["y"], group=3),
        drawn(1, 3, 5),
        {"w": drawn(6, 1, 3), "b": drawn(6)},
    ),
    "transposed": (
        helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], group=2, strides=[2, 1], output_padding=[1, 0]),
        drawn(2, 4, 3, 5),
        {"w": drawn(4, 3, 3, 2), "b": drawn(6)},
    ),
    "product": (
        helper.make_node("Gemm", ["x", "w", "b"], ["y"], alpha=0.5, beta=2.0, transB=1),
        drawn(3, 5),
        {"w": drawn(6, 5), "b": drawn(1, 6)},
    ),
}


def graph_of(model: onnx.ModelProto) -> Graph:
    return simplify(model, "model", KEPT, {})


@pytest.mark.parametrize("producer", PRODUCERS)
def test_everything_that_channels_are_multiplied_by_is_folded(producer: str) -> None:
    first, x, constants = PRODUCERS[producer]
    spread = (6, *([1] * (x.ndim - 2)))
    weights = {"s": drawn(6), "o": drawn(6), "m": drawn(6), "v": np.abs(drawn(6)) + 0.1}
    per_channel = {name: drawn(*spread) + 3 for name in ("f", "d", "a")} | {"scalar": np.array(2, np.float32)}
    nodes = [
        first,
        helper.make_node("BatchNormalization", ["y", "s", "o", "m", "v"], ["n"], epsilon=1e-3),
        helper.make_node("Mul", ["f", "n"], ["p"]),
        helper.make_node("Sub", ["p", "a"], ["q"]),
        helper.make_node("Div", ["q", "d"], ["r"]),
        helper.make_node("Add", ["r", "scalar"], ["z"]),
    ]
    model = model_of(nodes, {"x": x}, constants | weights | per_channel)
    folded = fold(graph_of(model))
    assert [node.operator for node in folded.nodes] == [first.op_type]
    wanted = reference(model, {"x": x})[0]
    np.testing.assert_allclose(computed(folded, {"x": x})[0], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("reason", ["read twice", "an output", "of the other axis", "no number", "float16"])
def test_what_is_not_folded(reason: str) -> None:
    first, x, constants = PRODUCERS["convolution"]
    shape = (1, 1, 1, 5) if reason == "of the other axis" else (6, 1, 1)
    factor = drawn(*shape)
    if reason == "no number":
        factor[...] = np.inf
    if reason == "float16":
        x, factor = x.astype(np.float16), factor.astype(np.float16)
        constants = {name: constant.astype(np.float16) for name, constant in constants.items()}
    nodes = [first, helper.make_node("Mul", ["y", "f"], ["z"])]
    if reason == "read twice":
        nodes += [helper.make_node("Relu", ["y"], ["r"]), helper.make_node("Add", ["z", "r"], ["out"])]
    model = model_of(nodes, {"x": x}, constants | {"f": factor})
    if reason == "an output":
        model.graph.output.append(onnx.ValueInfoProto(name="y"))
    graph = graph_of(model)
    assert fold(graph).nodes == graph.nodes


def test_affine() -> None:
    factor, summand = affine([np.array([item], np.float32) for item in (2, 3, 5, 15)], 1.0)
    np.testing.assert_array_equal([factor, summand], [[0.5], [0.5]])
