from __future__ import annotations

import numpy as np
import pytest
from tvm import auto_scheduler, te

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.schedulers.auto_scheduler.operators import KINDS, te_operator


@pytest.mark.parametrize("kind", KINDS)
def test_operators_are_tasks_of_different_shapes(kind: str) -> None:
    keys = {auto_scheduler.ComputeDAG(te_operator(kind, number)).workload_key() for number in range(4)}
    assert len(keys) > 1
    again = auto_scheduler.ComputeDAG(te_operator(kind, 0)).workload_key()
    assert again == auto_scheduler.ComputeDAG(te_operator(kind, 0)).workload_key()
    assert again in keys


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_come_first_and_the_output_is_computed(kind: str) -> None:
    *inputs, output = te_operator(kind, 2)
    assert inputs
    assert all(isinstance(tensor.op, te.PlaceholderOp) for tensor in inputs)
    assert isinstance(output.op, te.ComputeOp)
    assert all(int(size) > 0 for tensor in (*inputs, output) for size in tensor.shape)


def test_a_rectangular_kernel_keeps_the_size_of_the_image() -> None:
    for number in range(6):
        data, weight, _, output = te_operator("rectangular-conv2d", number)
        assert sorted(map(int, weight.shape[:2]))[0] == 1
        assert list(map(int, output.shape[:3])) == list(map(int, data.shape[:3]))


def test_an_unknown_kind_is_named_with_those_that_exist() -> None:
    with pytest.raises(InputError, match=r"unknown operator 'conv3d'; one of: dense, .*rectangular-conv2d"):
        te_operator("conv3d", 0)


def test_other_random_numbers_are_left_alone() -> None:
    np.random.seed(3)
    expected = np.random.rand()
    np.random.seed(3)
    te_operator("dense", 0)
    assert np.random.rand() == expected
