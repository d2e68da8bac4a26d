"""Operators of random sizes of ``benchmarks/topi_operators.py``."""

from __future__ import annotations

import random

import pytest
import torch
from torch import nn

import tests.benchmarks.test_quick  # noqa: F401  (puts the scripts on the path)
from tvm_gnn_cost.datasets.split import TEST_NETWORKS
from tvm_gnn_cost.networks.catalogue import TUNED
from tvm_gnn_cost.schedulers import scheduler

pytest.importorskip("tvm")
topi_operators = pytest.importorskip("topi_operators")
single_tasks = pytest.importorskip("single_tasks")

#: Operator -> the axes of its data and its weight in PyTorch's order, without the batch.
ORDERS = (
    ("conv2d_nchw", (1, 2, 3), (0, 1, 2, 3)),
    ("depthwise_nchw", (1, 2, 3), (0, 1, 2, 3)),
    ("conv2d_nhwc", (3, 1, 2), (3, 2, 0, 1)),
    ("depthwise_nhwc", (3, 1, 2), (2, 3, 0, 1)),
    ("dense", (1,), (0, 1)),
    ("matmul", (1,), (1, 0)),
)


def layers_of(name: str) -> set[tuple[tuple[int, ...], ...]]:
    """The shapes of the input and the weight of each convolution and product of a network, without the batch."""
    make, shape = TUNED[name]
    found = set()
    with torch.device("meta"), torch.no_grad():
        network = make().eval()
        for layer in network.modules():
            if isinstance(layer, nn.Conv2d | nn.Linear):
                layer.register_forward_hook(
                    lambda layer, given, _: found.add((tuple(given[0].shape[1:]), tuple(layer.weight.shape)))
                )
        network(torch.zeros(shape))
    return found


@pytest.mark.parametrize("operator", topi_operators.OPERATORS)
def test_a_name_is_one_task_of_a_fixed_size(operator: str) -> None:
    chosen, keys = scheduler(), []
    for number in (0, 1, 2, 0):
        name = f"topi_operators:{operator}_{number}"
        (task,) = chosen.tasks_of_workload(
            name, chosen.target(), "tvm" if chosen.name == "meta-schedule" else "package"
        )
        keys.append(task.key)
    assert len(set(keys)) == 3
    assert keys[0] == keys[-1]


def test_no_operator_is_a_task_of_the_search_benchmarks() -> None:
    held_out = {tuple(map(tuple, task.shapes)) for task in single_tasks.CPU_TASKS.values()}
    for operator, sized in topi_operators.OPERATORS.items():
        for number in range(64):
            shapes, _ = sized(random.Random(f"{operator}/{number}"))
            assert tuple(map(tuple, shapes)) not in held_out, (operator, number)


def test_no_operator_is_a_layer_of_a_held_out_network() -> None:
    is_ansors = scheduler().name == "auto-scheduler"
    names = ("resnet-18", "mobilenet-v1", "inception-v3") if is_ansors else TEST_NETWORKS["meta-schedule"]
    layers = {layer for name in names for layer in layers_of(name)}
    assert len(layers) > 50
    drawn = set()
    for operator, of_data, of_weight in ORDERS:
        for number in range(32):  # those of benchmarks/data
            if is_ansors and (operator, number) == ("depthwise_nchw", 11):  # left out
                continue
            (data, weight, *_), _ = topi_operators.OPERATORS[operator](random.Random(f"{operator}/{number}"))
            drawn.add((tuple(data[i] for i in of_data), tuple(weight[i] for i in of_weight)))
    assert not layers & drawn
