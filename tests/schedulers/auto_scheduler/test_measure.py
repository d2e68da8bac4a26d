from __future__ import annotations

from typing import Any

import pytest
from tvm.auto_scheduler.measure import MeasureResult

from tests.schedulers.auto_scheduler.small_tasks import broken_state
from tests.schedulers.conftest import QUICK
from tvm_gnn_cost.datasets.records import Failure
from tvm_gnn_cost.schedulers.auto_scheduler.builder import Program
from tvm_gnn_cost.schedulers.auto_scheduler.measure import measure_states, outcome_of
from tvm_gnn_cost.schedulers.build_pool import BuildPool
from tvm_gnn_cost.schedulers.scheduler import MeasureSettings, Task


def test_a_result_without_an_error_has_its_costs() -> None:
    result = MeasureResult([0.25, 0.5, 1.0], 0, "", 0.1, 7)
    outcome = outcome_of(result)
    assert (outcome.seconds, outcome.failure, outcome.message) == ((0.25, 0.5, 1.0), None, "")
    assert outcome.latency == 0.5
    assert outcome.result is result


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        (1, Failure.INSTANTIATION_ERROR),
        (2, Failure.BUILD_ERROR),
        (3, Failure.BUILD_ERROR),
        (4, Failure.RUN_ERROR),
        (5, Failure.WRONG_ANSWER),
        (6, Failure.BUILD_TIMEOUT),
        (7, Failure.RUN_TIMEOUT),
        (8, Failure.UNKNOWN),
    ],
)
def test_every_error_of_tvms_is_a_kind_of_failure(code: int, failure: Failure) -> None:
    outcome = outcome_of(MeasureResult([1e10], code, "what TVM says", 0.1, 7))
    assert (outcome.seconds, outcome.failure, outcome.message) == ((), failure, "what TVM says")
    assert outcome.latency == float("inf")


def test_failures_are_told_apart_and_tasks_come_in_order(
    task: Task, tasks: list[Task], candidates: list[Any], build_pool: BuildPool[Program]
) -> None:
    other = next(one for one in tasks if "softmax" in one.name)
    settings = MeasureSettings(repeats=1_000_000, timeout_s=1)
    groups = [(other, []), (task, [broken_state(task.workload), candidates[0]])]
    (first, none), (second, outcomes) = measure_states(groups, settings, build_pool)
    assert (first, none, second) == (other, [], task)
    assert [outcome.failure for outcome in outcomes] == [Failure.INSTANTIATION_ERROR, Failure.RUN_TIMEOUT]
    assert "not done within 1 seconds" in outcomes[1].message


def test_programs_that_run_have_a_latency_for_each_repeat(
    task: Task, candidates: list[Any], build_pool: BuildPool[Program]
) -> None:
    ((_, outcomes),) = measure_states([(task, candidates[:2])], QUICK, build_pool)
    for outcome in outcomes:
        assert outcome.failure is None
        assert len(outcome.seconds) == len(outcome.result.costs) == 2
        assert 0 < outcome.latency < 1
