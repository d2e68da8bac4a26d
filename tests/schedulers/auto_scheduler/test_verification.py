from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import auto_scheduler, te, tir, topi
from tvm.auto_scheduler.measure import MeasureInput

from tests.schedulers.auto_scheduler.small_tasks import TARGET, conv_task, matmul_task, sample_states
from tvm_gnn_cost.datasets.records import Failure
from tvm_gnn_cost.datasets.tenset import FAILURES
from tvm_gnn_cost.measuring.arguments import Argument, draw
from tvm_gnn_cost.measuring.verification import Reference
from tvm_gnn_cost.schedulers.auto_scheduler.builder import Program, build_states
from tvm_gnn_cost.schedulers.auto_scheduler.verification import TaskVerifier, arguments_of, dtypes_of, faults
from tvm_gnn_cost.schedulers.build_pool import BuildPool


@auto_scheduler.register_workload
def taken(rows: int, indices: int) -> list[te.Tensor]:
    table, index = te.placeholder((rows, 8), name="table"), te.placeholder((indices,), "int64", name="index")
    return [table, index, te.compute((indices, 8), lambda i, j: table[tir.max(index[i], 0), j], name="out")]


@auto_scheduler.register_workload
def divided(count: int) -> list[te.Tensor]:
    a, b = te.placeholder((count,), "int32", name="a"), te.placeholder((count,), "int32", name="b")
    return [a, b, topi.floor_divide(a, b)]


def test_arguments_are_in_range() -> None:
    task = auto_scheduler.SearchTask(func=taken, args=(20, 5), target=TARGET)
    assert arguments_of(task) == (
        Argument("float32", (20, 8)),
        Argument("int64", (5,), bound=20),
        Argument("float32", (5, 8), written=True),
    )
    assert dtypes_of(task) == ("float32", "int64")


def test_states_are_compared_with_the_program_before_any_schedule(build_pool: BuildPool[Program]) -> None:
    verifier = TaskVerifier(build_pool)
    # A large one has another order of loops in the program that it is compared with.
    for task in (matmul_task(), conv_task(), matmul_task(256, 256, 256)):
        (check,) = verifier.checks_of([task])
        assert check is not None
        assert not check.problem
        inputs = [MeasureInput(task, state) for state in sample_states(task, 2)]
        assert faults(build_pool, inputs, [check] * 2) == ["", ""]
        assert [int(one.error_no) for one in build_states(build_pool, inputs, verifier)] == [0, 0]


def test_the_program_that_others_are_compared_with_is_right(build_pool: BuildPool[Program]) -> None:
    verifier = TaskVerifier(build_pool)
    (check,) = verifier.checks_of([matmul_task(256, 256, 256)])
    assert check is not None
    reference = Reference.load(Path(check.reference))
    left, right, _ = draw(check.arguments, reference.kind)
    np.testing.assert_allclose(reference.expected[0], left @ right, rtol=1e-3, atol=1e-4)


def test_a_program_of_another_task_is_wrong(build_pool: BuildPool[Program], monkeypatch: Any) -> None:
    verifier, one, other = TaskVerifier(build_pool), matmul_task(32, 48, 64), matmul_task(32, 48, 32)
    (check,) = verifier.checks_of([one])
    assert check is not None
    monkeypatch.setitem(verifier.checks, str(other.workload_key), check)
    (built,) = build_states(build_pool, [MeasureInput(other, sample_states(other, 1)[0])], verifier)
    assert FAILURES[int(built.error_no)] in (Failure.WRONG_ANSWER, Failure.BUILD_ERROR)
    assert str(built.error_msg)


def test_integers_that_a_program_divides_by_are_not_zero(build_pool: BuildPool[Program]) -> None:
    task = auto_scheduler.SearchTask(func=divided, args=(64,), target=TARGET)
    (check,) = TaskVerifier(build_pool).checks_of([task])
    assert check is not None
    assert not check.problem


def test_what_another_kind_of_machine_runs_is_not_compared_here(build_pool: BuildPool[Program]) -> None:
    target = tvm.target.Target("llvm -mtriple=aarch64-linux-gnu -num-cores=2")
    task = auto_scheduler.SearchTask(func=taken, args=(20, 5), target=target)
    assert TaskVerifier(build_pool).local_checks_of([task]) == [None]
    assert faults(build_pool, [MeasureInput(task, task.compute_dag.get_init_state())], [None]) == [""]
