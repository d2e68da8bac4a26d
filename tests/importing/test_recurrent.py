from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

from tests.importing.graphs import computed
from tests.importing.relax.against_onnxruntime import model_of, reference
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.importing import quantized
from tvm_gnn_cost.importing.graph import Graph
from tvm_gnn_cost.importing.recurrent import EXPANSIONS
from tvm_gnn_cost.importing.simplify import simplify

#: Operator -> its gates, and its activations in each direction.
GATES = {"LSTM": (4, 3), "GRU": (3, 2), "RNN": (1, 1)}

#: Activation -> how many parameters it takes.
ACTIVATIONS = {
    **dict.fromkeys(("Sigmoid", "Tanh", "Relu", "Softsign", "Softplus"), 0),
    **dict.fromkeys(("LeakyRelu", "Elu", "ThresholdedRelu"), 1),
    **dict.fromkeys(("HardSigmoid", "ScaledTanh", "Affine"), 2),
}

KEPT = (
    *("Add", "Sub", "Mul", "MatMul", "Slice", "Reshape", "Transpose", "Concat", "Where", "Greater", "Clip"),
    *("Div", "Min", "Max", "Round", "Cast", "Equal", "ReduceMin", "ReduceMax"),
    *("Sigmoid", "Tanh", "Relu", "Softsign", "Softplus", "LeakyRelu", "Elu", "ThresholdedRelu", "HardSigmoid"),
)

STEPS, BATCH, FEATURES, HIDDEN = 4, 3, 2, 5


def graph_of(model: onnx.ModelProto) -> Graph:
    return simplify(model, "net", KEPT, EXPANSIONS | quantized.EXPANSIONS)


def drawn_layer(operator: str, seed: int) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """A layer with some of what the operator may have, and inputs."""
    choice, draw = random.Random(seed), np.random.default_rng(seed)
    direction = choice.choice(["forward", "reverse", "bidirectional"])
    count = 2 if direction == "bidirectional" else 1
    gates, functions = GATES[operator]

    def values(*shape: int) -> Any:
        return draw.normal(size=shape, scale=0.7).astype(np.float32)

    operands: dict[str, Any] = {"x": values(STEPS, BATCH, FEATURES)}
    operands["w"] = values(count, gates * HIDDEN, FEATURES)
    operands["r"] = values(count, gates * HIDDEN, HIDDEN)
    further = {
        "b": values(count, 2 * gates * HIDDEN),
        "lengths": draw.integers(1, STEPS + 1, BATCH).astype(np.int32),
        "state": values(count, BATCH, HIDDEN),
        **(
            {"cell": values(count, BATCH, HIDDEN), "peepholes": values(count, 3 * HIDDEN)} if operator == "LSTM" else {}
        ),
    }
    names = list(operands)
    for name, value in further.items():
        names.append(name if choice.random() < 0.5 else "")
        if names[-1]:
            operands[name] = value
    given = {"x", *(name for name in operands if choice.random() < 0.4)}
    attributes: dict[str, Any] = {"hidden_size": HIDDEN, "direction": direction}
    if choice.random() < 0.3:
        attributes["clip"] = 0.5
    if choice.random() < 0.5:
        chosen = choice.choices(list(ACTIVATIONS), k=functions * count)
        attributes["activations"] = chosen
        alpha = [choice.uniform(0.2, 0.8) for item in chosen if ACTIVATIONS[item]]
        beta = [choice.uniform(0.2, 0.8) for item in chosen if ACTIVATIONS[item] == 2]
        attributes |= ({"activation_alpha": alpha} if alpha else {}) | ({"activation_beta": beta} if beta else {})
    if operator == "GRU":
        attributes["linear_before_reset"] = choice.randrange(2)
    if operator == "LSTM":
        attributes["input_forget"] = choice.randrange(2)
    node = helper.make_node(operator, names, ["y", "h", "c"][: 3 if operator == "LSTM" else 2], **attributes)
    inputs = {name: operand for name, operand in operands.items() if name in given}
    weights = {name: operand for name, operand in operands.items() if name not in given}
    model = model_of(node, inputs, weights, opset=choice.choice([7, 14]))
    return model, inputs


@pytest.mark.parametrize("seed", range(25))
@pytest.mark.parametrize("operator", GATES)
def test_as_onnx_runtime_computes_it(operator: str, seed: int) -> None:
    model, inputs = drawn_layer(operator, seed)
    for actual, wanted in zip(computed(graph_of(model), inputs), reference(model, inputs), strict=True):
        assert (actual.shape, actual.dtype) == (wanted.shape, wanted.dtype)
        np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("operator", GATES)
def test_with_the_batch_first(operator: str) -> None:
    """ONNX's own definition computes it; ONNX Runtime does not."""
    gates, _ = GATES[operator]
    draw = np.random.default_rng(0)
    shapes = {
        "x": (BATCH, STEPS, FEATURES),
        "w": (1, gates * HIDDEN, FEATURES),
        "r": (1, gates * HIDDEN, HIDDEN),
        "b": (1, 2 * gates * HIDDEN),
    }
    operands = {name: draw.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    node = helper.make_node(operator, list(operands), ["y", "h"], hidden_size=HIDDEN, layout=1)
    model = model_of(node, {"x": operands.pop("x")}, operands, opset=14)
    inputs = {"x": draw.normal(size=shapes["x"]).astype(np.float32)}
    for actual, wanted in zip(
        computed(graph_of(model), inputs), ReferenceEvaluator(model).run(None, inputs), strict=True
    ):
        assert actual.shape == wanted.shape
        np.testing.assert_allclose(actual, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("direction", ["reverse", "bidirectional"])
@pytest.mark.parametrize("is_per_channel", [True, False])
def test_with_weights_that_are_integers(dtype: Any, direction: str, is_per_channel: bool) -> None:
    draw, count = np.random.default_rng(0), 2 if direction == "bidirectional" else 1
    bounds = np.iinfo(dtype)
    size = (count, 4 * HIDDEN) if is_per_channel else (count,)
    operands = {
        "w": draw.integers(bounds.min, bounds.max + 1, (count, FEATURES, 4 * HIDDEN)).astype(dtype),
        "r": draw.integers(bounds.min, bounds.max + 1, (count, HIDDEN, 4 * HIDDEN)).astype(dtype),
        "b": draw.normal(size=(count, 8 * HIDDEN)).astype(np.float32),
        **{name: draw.uniform(0.001, 0.01, size).astype(np.float32) for name in ("ws", "rs")},
        **{name: np.full(size, 0 if dtype == np.int8 else 128, dtype) for name in ("wz", "rz")},
    }
    names = ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "rs", "rz"]
    outputs = ["y", "h", "c"]
    attributes: dict[str, Any] = {"hidden_size": HIDDEN, "direction": direction}
    node = helper.make_node("DynamicQuantizeLSTM", names, outputs, domain="com.microsoft", **attributes)
    inputs = {"x": draw.normal(size=(STEPS, BATCH, FEATURES)).astype(np.float32)}
    model = model_of(node, inputs, operands, opset=14, domains={"com.microsoft": 1})
    for actual, wanted in zip(computed(graph_of(model), inputs), reference(model, inputs), strict=True):
        np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-5)


def test_the_input_of_all_steps_is_one_product() -> None:
    draw = np.random.default_rng(0)
    x, w, r = (draw.normal(size=item).astype(np.float32) for item in ((STEPS, 1, 2), (2, 20, 2), (2, 20, 5)))
    node = helper.make_node("LSTM", ["x", "w", "r"], ["y"], hidden_size=5, direction="bidirectional")
    graph = graph_of(model_of(node, {"x": x}, {"w": w, "r": r}))
    # The first state is zero, and so is its product.
    assert sum(node.operator == "MatMul" for node in graph.nodes) == 1 + 2 * (STEPS - 1)


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"activations": ["Wave"]}, "its activation 'Wave' is unknown"),
        ({"activations": ["Affine"]}, "its activation 'Affine' lacks a parameter"),
        ({"direction": "sideways"}, "its direction 'sideways' is unknown"),
    ],
)
def test_what_is_refused(attributes: dict[str, Any], reason: str) -> None:
    x, w, r = (np.zeros(item, np.float32) for item in ((2, 1, 3), (1, 4, 3), (1, 4, 4)))
    model = model_of(helper.make_node("RNN", ["x", "w", "r"], ["y"], **attributes), {"x": x}, {"w": w, "r": r})
    with pytest.raises(InputError, match=reason):
        graph_of(model)


def test_a_very_long_sequence_is_refused() -> None:
    x, w, r = (np.zeros(item, np.float32) for item in ((5000, 1, 3), (1, 4, 3), (1, 4, 4)))
    model = model_of(helper.make_node("RNN", ["x", "w", "r"], ["y"]), {"x": x}, {"w": w, "r": r})
    with pytest.raises(InputError, match="it has 5000 steps, and 1 to 2048 can be unrolled"):
        graph_of(model)
