from __future__ import annotations

from typing import Any

import pytest
from tvm import auto_scheduler
from tvm.auto_scheduler.measure import MeasureResult

from tests.schedulers.auto_scheduler.small_tasks import broken_state
from tvm_gnn_cost.datasets.failure import Failure
from tvm_gnn_cost.schedulers.auto_scheduler.measure import local_runner, measure_states, outcome_of
from tvm_gnn_cost.schedulers.scheduler import MeasureSettings, Task


def test_a_result_without_an_error_has_its_costs() -> None:
    result = MeasureResult([0.25, 0.5], 0, "", 0.1, 7)
    outcome = outcome_of(result)
    assert (outcome.seconds, outcome.failure, outcome.message) == ((0.25, 0.5), None, "")
    assert outcome.latency == 0.25
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


def test_a_runner_has_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto_scheduler, "LocalRunner", dict)
    assert local_runner(MeasureSettings(repeats=5, min_repeat_ms=70, timeout_s=9.0)) == {
        "timeout": 9,
        "number": 1,
        "repeat": 5,
        "min_repeat_ms": 70,
        "enable_cpu_cache_flush": False,
    }


def test_failures_are_told_apart_and_tasks_come_in_order(task: Task, tasks: list[Task], candidates: list[Any]) -> None:
    other = next(one for one in tasks if "softmax" in one.name)
    # This TVM reports a program that runs too long as an error of the run.
    settings = MeasureSettings(repeats=1_000_000, min_repeat_ms=1, timeout_s=1)
    groups = [(other, []), (task, [broken_state(task.workload), candidates[0]])]
    (first, none), (second, outcomes) = measure_states(groups, settings)
    assert (first, none, second) == (other, [], task)
    assert [outcome.failure for outcome in outcomes] == [Failure.INSTANTIATION_ERROR, Failure.RUN_ERROR]
    assert "TimeoutError" in outcomes[1].message
