from __future__ import annotations

import importlib
import inspect
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import auto_scheduler, relay
from tvm.contrib import graph_executor

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.schedulers.auto_scheduler.networks import (
    NETWORKS,
    _fan_in,
    load_network,
    plain_task,
    tasks_of_workload,
)
from tvm_gnn_cost.schedulers.auto_scheduler.target import local_target
from tvm_gnn_cost.schedulers.scheduler import Task


@pytest.mark.parametrize("name", ["mlp", "mobilenet"])
def test_the_output_says_something_of_the_network(name: str):
    network = load_network(name)
    with tvm.transform.PassContext(opt_level=3):
        built = relay.build(network.mod, target=local_target(), params=network.params)
    module = graph_executor.GraphModule(built["default"](tvm.cpu()))
    outputs = []
    for scale in (1.0, 1.01):
        module.set_input("data", scale * network.example)
        module.run()
        outputs.append(module.get_output(0).numpy())
    assert np.isfinite(outputs[0]).all()
    assert outputs[0].std() > 0.01 * outputs[0].mean()
    assert outputs[0].max() < 0.9
    assert np.abs(outputs[1] - outputs[0]).max() > 1e-5 * outputs[0].max()


def test_weights_follow_from_a_fixed_seed() -> None:
    one, two = load_network("mlp"), load_network("mlp")
    np.testing.assert_array_equal(one.example, two.example)
    assert list(one.params) == list(two.params)
    for name, weight in one.params.items():
        np.testing.assert_array_equal(weight.numpy(), two.params[name].numpy())
    assert one.expected is None


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


@pytest.mark.parametrize("name", ["nosuch", "nosuch/1", "dense/x", "dense/-1", "/"])
def test_what_is_no_workload_is_named(name: str, target: Any) -> None:
    with pytest.raises(InputError, match=r"unknown (network|workload|operator)"):
        tasks_of_workload(name, target)
