from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import tvm

from tests.schedulers.meta_schedule.convolutions import Residual, output, to_relax
from tvm_gnn_cost.lowering.alternatives import mixed, replacements
from tvm_gnn_cost.lowering.layouts import legalize
from tvm_gnn_cost.schedulers.meta_schedule.networks import extract_tasks
from tvm_gnn_cost.schedulers.meta_schedule.preload import import_tensor_intrin
from tvm_gnn_cost.schedulers.meta_schedule.target import local_target


@pytest.fixture(scope="module")
def network() -> Any:
    import_tensor_intrin()
    torch.manual_seed(0)
    module, image = Residual(32), torch.randn(1, 3, 56, 56)
    mod = to_relax(module, image)
    return *legalize(mod), image, module(image).detach()


def keys(mod: tvm.IRModule) -> set[str]:
    return {task.key for task in extract_tasks(mod, local_target())}


def test_each_replacement_is_a_task_and_stands_for_one(network: Any) -> None:
    direct, other, *_ = network
    result = replacements(direct, other)
    assert len(result) == 2
    assert set(result) == keys(other) - keys(direct)
    assert set(result.values()) == keys(direct) - keys(other)
    names = {task.key: task.name for task in extract_tasks(other, local_target())}
    assert all("winograd" in names[key] for key in result)
    assert replacements(direct, direct) == {}


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_mixed_network_has_the_chosen_tasks_and_computes_the_same(network: Any, number: int) -> None:
    direct, other, image, expected = network
    results = replacements(direct, other)
    chosen = sorted(results)[:number]
    mod = mixed(direct, other, chosen)
    replaced = {results[key] for key in chosen}
    assert keys(mod) == keys(direct) - replaced | set(chosen)
    np.testing.assert_allclose(output(mod, image), expected, atol=1e-4)


def test_a_network_that_is_fused_otherwise_has_no_replacements(network: Any) -> None:
    direct, other, *_ = network
    image = torch.randn(1, 3, 8, 8)
    assert replacements(direct, legalize(to_relax(torch.nn.Conv2d(3, 4, 1), image))[0]) == {}
    assert replacements(legalize(to_relax(torch.nn.Conv2d(3, 4, 1), image))[0], other) == {}
