"""Operators of random sizes of ``benchmarks/topi_operators.py``."""

from __future__ import annotations

import random

import pytest

import tests.benchmarks.test_quick  # noqa: F401  (puts the scripts on the path)

pytest.importorskip("tvm.s_tir")
topi_operators = pytest.importorskip("topi_operators")
single_tasks = pytest.importorskip("single_tasks")


@pytest.mark.parametrize("operator", topi_operators.OPERATORS)
def test_a_name_is_one_task_of_a_fixed_size(operator: str) -> None:
    from tvm_gnn_cost.schedulers.meta_schedule.networks import tasks_with_tvm
    from tvm_gnn_cost.schedulers.meta_schedule.target import local_target

    keys = []
    for number in (0, 1, 2, 0):
        name = f"topi_operators:{operator}_{number}"
        (task,) = tasks_with_tvm(name, local_target())
        keys.append(task.key)
    assert len(set(keys)) == 3
    assert keys[0] == keys[-1]


def test_no_operator_is_a_task_of_the_search_benchmarks() -> None:
    held_out = {tuple(map(tuple, task.shapes)) for task in single_tasks.CPU_TASKS.values()}
    for operator, sized in topi_operators.OPERATORS.items():
        for number in range(64):
            shapes, _ = sized(random.Random(f"{operator}/{number}"))
            assert tuple(map(tuple, shapes)) not in held_out, (operator, number)
