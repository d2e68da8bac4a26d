from __future__ import annotations

from pathlib import Path
from typing import Any

import tvm
from tvm.auto_scheduler import SearchTask
from tvm.auto_scheduler.measure import MeasureInput

from tests.schedulers.auto_scheduler.small_tasks import broken_state
from tvm_gnn_cost.datasets.records import Failure
from tvm_gnn_cost.datasets.tenset import FAILURES
from tvm_gnn_cost.schedulers.auto_scheduler.builder import Program, build_and_export, build_states
from tvm_gnn_cost.schedulers.build_pool import BuildPool
from tvm_gnn_cost.schedulers.scheduler import Task


def test_a_failed_build_has_a_code_and_the_others_go_on(
    task: Task, candidates: list[Any], build_pool: BuildPool[Program]
) -> None:
    states = [candidates[0], broken_state(task.workload), candidates[1]]
    one, bad, two = build_states(build_pool, [MeasureInput(task.workload, state) for state in states])
    for built in (one, two):
        assert int(built.error_no) == 0
        assert built.time_cost > 0
        path = Path(str(built.filename))
        assert list(path.parent.iterdir()) == [path]
        tvm.runtime.load_module(str(path))
    assert one.filename != two.filename
    assert FAILURES[int(bad.error_no)] == Failure.INSTANTIATION_ERROR
    assert "Traceback" in str(bad.error_msg)


def test_programs_of_another_kind_of_machine_are_linked_there(task: Task, build_pool: BuildPool[Program]) -> None:
    there = SearchTask(workload_key=task.key, target="llvm -mtriple=x86_64-linux-gnu -num-cores=2")
    (built,) = build_states(build_pool, [MeasureInput(there, there.compute_dag.get_init_state())])
    assert str(built.filename).endswith(".tar"), built.error_msg


def test_a_build_that_takes_too_long_has_a_code(task: Task, candidates: list[Any]) -> None:
    (built,) = build_states(BuildPool(build_and_export, timeout_s=1e-3), [MeasureInput(task.workload, candidates[0])])
    assert FAILURES[int(built.error_no)] == Failure.BUILD_TIMEOUT
    assert str(built.error_msg) == "not built within 0.001 seconds"
