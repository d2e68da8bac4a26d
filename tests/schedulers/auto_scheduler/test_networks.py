from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import torch
import tvm
from torch import nn
from tvm import auto_scheduler, relay
from tvm.contrib import graph_executor

from tests.torch_networks import Convolutional, Recurrent, Transformer, assert_close, export_onnx, make
from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.networks.catalogue import drawn_workload, workload
from tvm_gnn_cost.schedulers.auto_scheduler.compile import CompiledNetwork
from tvm_gnn_cost.schedulers.auto_scheduler.networks import (
    NETWORKS,
    _fan_in,
    check_workload,
    load_network,
    plain_task,
    tasks_of_workload,
)
from tvm_gnn_cost.schedulers.auto_scheduler.target import local_target
from tvm_gnn_cost.schedulers.scheduler import Network, Task


@pytest.mark.parametrize("name", ["mlp", pytest.param("mobilenet", marks=pytest.mark.slow)])
def test_the_output_says_something_of_the_network(name: str):
    network = load_network(name)
    with tvm.transform.PassContext(opt_level=3):
        built = relay.build(network.mod, target=local_target(), params=network.params)
    module = graph_executor.GraphModule(built["default"](tvm.cpu()))
    outputs = []
    for scale in (1.0, 1.01):
        module.set_input("data", scale * network.inputs["data"])
        module.run()
        outputs.append(module.get_output(0).numpy())
    assert np.isfinite(outputs[0]).all()
    assert outputs[0].std() > 0.01 * outputs[0].mean()
    assert outputs[0].max() < 0.9
    assert np.abs(outputs[1] - outputs[0]).max() > 1e-5 * outputs[0].max()


def test_weights_follow_from_a_fixed_seed() -> None:
    one, two = load_network("mlp"), load_network("mlp")
    np.testing.assert_array_equal(one.inputs["data"], two.inputs["data"])
    assert list(one.params) == list(two.params)
    for name, weight in one.params.items():
        np.testing.assert_array_equal(weight.numpy(), two.params[name].numpy())
    assert one.expected is one.program is None
    assert one.digest == ""


def assert_right(network: Network, module: nn.Module) -> None:
    """The compiled network's outputs are PyTorch's."""
    inputs = {name: torch.from_numpy(array) for name, array in network.inputs.items()}
    assert_close(CompiledNetwork(network, local_target(), None).run(network.inputs), module, inputs)
    parameters = [str(one.name_hint) for one in network.mod["main"].params]
    assert [name for name in parameters if name not in network.params] == list(network.inputs)


@pytest.mark.parametrize("kind", [Convolutional, Transformer, Recurrent])
def test_a_file_of_pytorch_computes_what_pytorch_does(kind: Any, tmp_path: Path) -> None:
    module = make(kind)
    network = load_network(export_onnx(module, tmp_path / "net.onnx", dynamo=False, opset_version=17))
    assert network.name == "net"
    assert len(network.digest) == 64
    assert_right(network, module)


def test_convolutions_of_a_file_are_tuned_as_nhwc(tmp_path: Path) -> None:
    path = export_onnx(make(Convolutional), tmp_path / "net.onnx", dynamo=False, opset_version=17)
    layouts = set(re.findall(r'data_layout="(\w+)"', str(load_network(path).mod)))
    assert layouts == {"NHWC"}


def test_newer_operators_are_converted_or_the_way_out_is_named(tmp_path: Path) -> None:
    module = make(Convolutional)
    # Its mean takes the axes as an input, which this TVM's importer would overlook.
    assert_right(load_network(export_onnx(module, tmp_path / "18.onnx", dynamo=False, opset_version=18)), module)
    newest = export_onnx(make(Transformer), tmp_path / "net.onnx", dynamo=False, opset_version=20)
    with pytest.raises(InputError, match=r"net is of ONNX opset 20 and this TVM's importer knows 17.*opset_version=17"):
        load_network(newest)


def test_an_operator_that_tvm_cannot_import_is_named(tmp_path: Path) -> None:
    node = onnx.helper.make_node("Det", ["x"], ["y"])
    values = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, 2, 2]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "graph", values[:1], values[1:])
    opset = [onnx.helper.make_opsetid("", 13)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "net.onnx")
    with pytest.raises(WorkError, match=r"TVM cannot import net: .*\bDet$"):
        load_network(tmp_path / "net.onnx")


def test_networks_of_pytorch_are_refused_with_the_way_out(tmp_path: Path) -> None:
    module = make(Convolutional)
    for source in (tmp_path / "net.pt2", "net.pt2", module):
        with pytest.raises(InputError, match=r"imports no PyTorch program: export .* as an ONNX file"):
            load_network(source, (torch.randn(1, 3, 8, 8),), trusted=True)


def test_a_relay_module_is_a_network() -> None:
    mod, params = relay.testing.mlp.get_workload(batch_size=2, image_shape=(1, 4, 4))
    bound = tvm.IRModule.from_expr(relay.build_module.bind_params_by_name(mod["main"], params))
    outputs = []
    for source in ((mod, params), bound):
        network = load_network(source, {"data": np.ones((2, 1, 4, 4), np.float32)})
        assert network.name == "IRModule"
        assert network.program is network.expected is None
        outputs.append(CompiledNetwork(network, local_target(), None).run(network.inputs)[0])
    np.testing.assert_allclose(*outputs, atol=1e-6)


def test_a_random_layer_computes_what_pytorch_does() -> None:
    for name in ("depthwise-layer/1", "squeeze-excite-layer/0", "linear-layer/0"):
        network = load_network(name)
        assert (network.digest, network.program) == ("", None)
        assert_right(network, drawn_workload(name)[0])
    assert set(re.findall(r'data_layout="(\w+)"', str(load_network("depthwise-layer/1").mod))) == {"NHWC"}


def test_a_layer_with_a_shape_of_mobilenet_has_no_tasks() -> None:
    assert workload("depthwise-layer/79")[1] == (1, 32, 112, 112)
    assert tasks_of_workload("depthwise-layer/79", local_target()) == []
    assert workload("pointwise-layer/100")[1] == (1, 128, 56, 56)
    assert tasks_of_workload("pointwise-layer/100", local_target()) == []
    assert tasks_of_workload("pointwise-layer/0", local_target())


@pytest.mark.parametrize("name", NETWORKS)
def test_a_networks_settings_are_its_modules(name: str) -> None:
    module, settings = NETWORKS[name]
    accepted = inspect.signature(importlib.import_module(f"tvm.relay.testing.{module}").get_workload).parameters
    assert set(settings) <= set(accepted) or any(one.kind is one.VAR_KEYWORD for one in accepted.values())


@pytest.mark.parametrize(
    ("shape", "is_nhwc", "inputs"),
    [
        ((64, 784), False, 784),
        ((32, 16, 3, 5), False, 16 * 15),
        ((3, 5, 16, 32), True, 16 * 15),
        ((3, 3, 48, 1), True, 9),
        ((10, 64), True, 64),
    ],
)
def test_the_inputs_of_one_output(shape: tuple[int, ...], is_nhwc: bool, inputs: int) -> None:
    assert _fan_in(shape, is_nhwc) == inputs


def test_the_tasks_of_a_network_keep_the_layouts_of_their_weights(tasks: list[Task]) -> None:
    assert [task.weight for task in tasks] == [1] * 4
    for task in tasks:
        assert str(task.workload.workload_key) == task.key
        assert str(task.workload.desc) == task.name
        assert int(task.workload.layout_rewrite_option) == int(auto_scheduler.LayoutRewriteOption.NO_REWRITE)


def test_an_operators_task_can_be_made_again_from_its_key(target: Any) -> None:
    (task,) = tasks_of_workload("dense/3", target)
    assert (task.name, task.weight) == ("dense/3", 1)
    assert str(plain_task(task.key, target).compute_dag) == str(task.workload.compute_dag)


def test_a_function_that_returns_tensor_expressions_is_one_task(
    target: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "written_by_a_user.py").write_text(
        "from tvm import te, topi\n"
        "def product():\n"
        "    a, b = te.placeholder((4, 8), name='a'), te.placeholder((8, 6), name='b')\n"
        "    return [a, b, topi.nn.relu(topi.nn.matmul(a, b))]\n"
    )
    monkeypatch.chdir(tmp_path)
    check_workload("written_by_a_user:product")
    (task,) = tasks_of_workload("written_by_a_user:product", target)
    assert (task.name, task.weight) == ("written_by_a_user:product", 1)
    tensors = plain_task(task.key, target).compute_dag.tensors
    assert [tuple(map(int, tensor.shape)) for tensor in tensors] == [(4, 8), (8, 6), (4, 6)]


@pytest.mark.parametrize("name", ["nosuch", "nosuch/1", "dense/x", "dense/-1", "/"])
def test_what_is_no_workload_is_named(name: str, target: Any) -> None:
    with pytest.raises(InputError, match=r"unknown (network|workload|operator)"):
        tasks_of_workload(name, target)
