from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from torch import nn

from tests.torch_networks import Convolutional, Recurrent, example, export_onnx, make
from tvm_gnn_cost.importing import onnx_graphs
from tvm_gnn_cost.schedulers.meta_schedule.recurrent import unroll

pytest.importorskip("onnxruntime")

STEPS, BATCH, FEATURES, HIDDEN = 4, 2, 3, 5


def operators(model: onnx.ModelProto) -> set[str]:
    return {node.op_type for node in model.graph.node}


def assert_same(model: onnx.ModelProto, inputs: dict[str, Any]) -> onnx.ModelProto:
    """The model without its recurrent operators, whose outputs are the same."""
    before = model.SerializeToString()
    unrolled = unroll(model)
    assert model.SerializeToString() == before
    assert not operators(unrolled) & {"LSTM", "GRU", "RNN"}
    onnx.checker.check_model(unrolled, full_check=True)
    expected, found = onnx_graphs.run(model, inputs), onnx_graphs.run(unrolled, inputs)
    assert expected is not None
    assert found is not None
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    return unrolled


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("opset", [11, 17])
def test_pytorchs_layers(kind: Any, opset: int, tmp_path: Path) -> None:
    module = make(Recurrent, cell=kind)
    model = onnx.load(export_onnx(module, tmp_path / "net.onnx", dynamo=False, opset_version=opset))
    inputs = {name: value.numpy() for name, value in example(module).items()}
    unrolled = assert_same(model, inputs)
    # The input's share is one product for each layer and direction, and the state's one for each step of these.
    products = [node for node in unrolled.graph.node if node.op_type == "MatMul"]
    assert len(products) == 2 * 2 * (1 + 5)


def recurrent(
    operator: str,
    *,
    outputs: tuple[str, ...] = ("y", "y_h"),
    with_bias: bool = True,
    with_state: bool = True,
    more_inputs: tuple[str, ...] = (),
    **attributes: Any,
) -> onnx.ModelProto:
    """A model of one operator."""
    rng = np.random.default_rng(0)
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[operator]
    shapes = {"w": (gates * HIDDEN, FEATURES), "r": (gates * HIDDEN, HIDDEN), "b": (2 * gates * HIDDEN,)}
    weights = [
        numpy_helper.from_array(rng.standard_normal((directions, *shape)).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    states = ["h", "c"][: 2 if operator == "LSTM" else 1] if with_state else []
    inputs = [("x", (STEPS, BATCH, FEATURES)), *((name, (directions, BATCH, HIDDEN)) for name in states)]
    names = ["x", "w", "r", "b" if with_bias else "", "", *states, *more_inputs]
    graph = helper.make_graph(
        [helper.make_node(operator, names, outputs, hidden_size=HIDDEN, **attributes)],
        "graph",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs if name],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)


def values(model: onnx.ModelProto) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    shapes = onnx_graphs.open_shapes(model, "net")
    return {name: rng.standard_normal([int(one) for one in shape]).astype(np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize(
    "settings",
    [
        {"operator": "LSTM", "outputs": ("y", "y_h", "y_c"), "direction": "bidirectional"},
        {"operator": "LSTM", "outputs": ("", "", "y_c"), "direction": "reverse"},
        {"operator": "LSTM", "with_bias": False, "with_state": False},
        {"operator": "LSTM", "activations": ["Relu", "Tanh", "Sigmoid"]},
        {"operator": "GRU", "linear_before_reset": 0, "direction": "bidirectional"},
        {"operator": "GRU", "linear_before_reset": 1, "direction": "reverse"},
        {"operator": "RNN", "outputs": ("", "y_h"), "activations": ["Tanh", "Relu"], "direction": "bidirectional"},
    ],
)
def test_what_the_operators_allow(settings: dict[str, Any]) -> None:
    model = recurrent(**settings)
    assert_same(model, values(model))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"clip": 1.0}, "operator LSTM with clip"),
        ({"layout": 1}, "operator LSTM with layout"),
        ({"more_inputs": ("p",)}, "operator LSTM with peepholes"),
        ({"activations": ["HardSigmoid", "Tanh", "Tanh"]}, "operator LSTM with other activations than Sigmoid, Tanh"),
    ],
)
def test_what_pytorch_never_writes_is_named(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(NotImplementedError, match=sentence):
        unroll(recurrent("LSTM", **settings))


def test_an_input_of_unknown_sizes_is_named() -> None:
    model = recurrent("GRU")
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "steps"
    with pytest.raises(NotImplementedError, match="operator GRU with an input of unknown sizes"):
        unroll(model)


def test_other_models_are_left_alone(tmp_path: Path) -> None:
    model = onnx.load(export_onnx(make(Convolutional), tmp_path / "net.onnx", dynamo=False))
    assert unroll(model) is model
