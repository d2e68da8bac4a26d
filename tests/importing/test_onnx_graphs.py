from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.importing.relax.against_onnxruntime import model_of
from tests.torch_networks import Convolutional, Recurrent, Transformer, assert_close, example, export_onnx, make
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.importing import onnx_graphs


def model(
    nodes: list[onnx.NodeProto], shape: list[Any] | None, weights: list[onnx.TensorProto] | None = None, **more: Any
) -> onnx.ModelProto:
    """A model from x to y."""
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy")
    graph = helper.make_graph(nodes, "graph", [x], [y], weights or [])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8, **more)


def relu(shape: list[Any] | None) -> onnx.ModelProto:
    return model([helper.make_node("Relu", ["x"], ["y"])], shape)


@pytest.mark.parametrize("kind", [Convolutional, Transformer, Recurrent])
@pytest.mark.parametrize("dynamo", [True, False])
def test_a_file_of_pytorch_gives_pytorchs_outputs(kind: Any, dynamo: bool, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    module = make(kind)
    read = onnx_graphs.read_onnx(export_onnx(module, tmp_path / "net.onnx", dynamo=dynamo))
    # Today's exporter keeps the weights in a file of their own.
    assert (tmp_path / "net.onnx.data").exists() == dynamo
    tensors = example(module)
    inputs = {name: value.numpy() for name, value in tensors.items()}
    shapes = onnx_graphs.open_shapes(read, "net")
    assert shapes == {name: value.shape for name, value in inputs.items()}
    assert onnx_graphs.input_types(read, "net") == {name: value.dtype for name, value in inputs.items()}
    outputs = onnx_graphs.run(onnx_graphs.with_shapes(read, shapes, "net"), inputs)
    assert_close(outputs, module, tensors)


def test_without_onnx_runtime_its_own_evaluator_runs_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    (result,) = onnx_graphs.run(relu([2]), {"x": np.array([-1.0, 2.0], np.float32)}) or ()
    assert result.tolist() == [0.0, 2.0]
    unknown = model([helper.make_node("Nosuch", ["x"], ["y"])], [2])
    assert onnx_graphs.run(unknown, {"x": np.zeros(2, np.float32)}) is None


@pytest.mark.parametrize("is_inside", [False, True])
@pytest.mark.parametrize("operator", ["ConvInteger", "QLinearConv", "QLinearMatMul", "MatMulInteger"])
def test_products_of_bytes_are_exact(operator: str, is_inside: bool) -> None:
    """ONNX Runtime saturates them on processors without VNNI, unless told not to."""
    pytest.importorskip("onnxruntime")
    x = np.full((1, 4, 4, 4) if "Conv" in operator else (4, 16), 255, np.uint8)
    constants = {
        "xs": np.float32(0.05),
        "xz": np.uint8(0),
        "w": np.full((6, 4, 3, 2) if "Conv" in operator else (16, 8), 127, np.int8),
        "ws": np.float32(0.03),
        "wz": np.int8(0),
        "s": np.float32(20),
        "z": np.uint8(3),
    }
    names = ["x", "w", "xz", "wz"] if "Integer" in operator else ["x", *constants]
    node = helper.make_node(operator, names, ["y"])
    if is_inside:
        branch = helper.make_graph([node], "branch", [], [onnx.ValueInfoProto(name="y")])
        node = helper.make_node("If", ["yes"], ["y"], then_branch=branch, else_branch=branch)
        constants["yes"] = np.array(True)
    net = model_of(node, {"x": x}, constants, opset=13)
    wanted = onnx.reference.ReferenceEvaluator(net).run(None, {"x": x})
    for outputs in (onnx_graphs.run(net, {"x": x}), onnx_graphs.run_again(net, [x])):
        np.testing.assert_array_equal(outputs, wanted)


def test_open_sizes_are_named_and_fixed_everywhere() -> None:
    # An unnamed size, one named as exporters do, and what old exporters write.
    read = relu([None, "n", 0, 3])
    assert onnx_graphs.open_shapes(read, "net") == {"x": ("x[0]", "n", "x[2]", 3)}
    fixed = onnx_graphs.with_shapes(read, {"x": (1, 2, 4, 3)}, "net")
    assert onnx_graphs.open_shapes(fixed, "net") == {"x": (1, 2, 4, 3)}
    assert onnx_graphs.open_shapes(read, "net") == {"x": ("x[0]", "n", "x[2]", 3)}


def test_an_input_of_no_known_shape_is_named() -> None:
    with pytest.raises(InputError, match="input 'x' of net is not a tensor of known rank"):
        onnx_graphs.open_shapes(relu(None), "net")


def test_weights_among_the_inputs_are_none() -> None:
    """As files of before 2019 have them."""
    weight = numpy_helper.from_array(np.ones(2, np.float32), "w")
    old = model([helper.make_node("Add", ["x", "w"], ["y"])], [2], [weight])
    old.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [2]))
    assert list(onnx_graphs.open_shapes(old, "net")) == list(onnx_graphs.input_types(old, "net")) == ["x"]


def test_a_models_own_functions_are_written_out() -> None:
    double = helper.make_function(
        "mine", "Double", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 13)]
    )
    read = model([helper.make_node("Double", ["x"], ["y"], domain="mine")], [2], functions=[double])
    read.opset_import.append(helper.make_opsetid("mine", 1))
    written = onnx_graphs.with_shapes(read, {"x": (2,)}, "net")
    assert [node.op_type for node in written.graph.node] == ["Add"]


def test_the_digest_is_of_the_graph_and_its_weights() -> None:
    def adding(value: float, operator: str = "Add") -> str:
        weight = numpy_helper.from_array(np.full(2, value, np.float32), "w")
        return onnx_graphs.digest(model([helper.make_node(operator, ["x", "w"], ["y"])], [2], [weight]))

    assert adding(1.0) == adding(1.0)
    assert len({adding(1.0), adding(2.0), adding(1.0, "Mul"), onnx_graphs.digest(relu([2]))}) == 4


def test_what_is_no_onnx_file_is_named(tmp_path: Path) -> None:
    whole = relu([2]).SerializeToString()
    for content in (b"", b"no model", whole[:-5]):
        (tmp_path / "bad.onnx").write_bytes(content)
        with pytest.raises(InputError, match=r"bad.onnx is not a complete ONNX file: "):
            onnx_graphs.read_onnx(tmp_path / "bad.onnx")
    with pytest.raises(FileNotFoundError):
        onnx_graphs.read_onnx(tmp_path / "nosuch.onnx")


def with_external(location: str, path: Path) -> Path:
    weight = numpy_helper.from_array(np.ones(2, np.float32), "w")
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value=location)
    path.write_bytes(model([helper.make_node("Add", ["x", "w"], ["y"])], [2], [weight]).SerializeToString())
    return path


@pytest.mark.parametrize("location", ["../secret", "{folder}/secret", "link", "up/secret", "sub/../../secret"])
def test_weights_outside_of_the_models_folder_are_not_read(location: str, tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(np.ones(2, np.float32).tobytes())
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "link").symlink_to("../secret")
    (folder / "up").symlink_to("..")
    path = with_external(location.format(folder=tmp_path), folder / "net.onnx")
    with pytest.raises(InputError, match=r"net.onnx is not a complete ONNX file: its weight 'w' is in .*, outside"):
        onnx_graphs.read_onnx(path)


def test_weights_beside_the_model_are_read_from_any_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "weights").write_bytes(np.array([3.0, 4.0], np.float32).tobytes())
    with_external("weights", tmp_path / "net.onnx")
    monkeypatch.chdir(tmp_path)
    for path in (Path("net.onnx"), tmp_path / "net.onnx"):
        (weight,) = onnx_graphs.read_onnx(path).graph.initializer
        assert numpy_helper.to_array(weight).tolist() == [3.0, 4.0]
    os.remove("weights")
    with pytest.raises(InputError, match=r"net.onnx is not a complete ONNX file: .*weights"):
        onnx_graphs.read_onnx(Path("net.onnx"))


def test_the_package_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(InputError, match=r"ONNX files need the package onnx: pip install 'tvm-gnn-cost\[onnx\]'"):
        onnx_graphs.read_onnx(tmp_path / "net.onnx")
    assert not onnx_graphs.accepts(object())


def test_sizes_without_a_name_are_different_ones() -> None:
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["?", 3, "?", "?"])]
    graph = helper.make_graph([], "graph", inputs, [])
    assert onnx_graphs.open_shapes(helper.make_model(graph), "net") == {"x": ("x[0]", 3, "x[2]", "x[3]")}
