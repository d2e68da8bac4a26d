"""The whole search of a perceptron's tasks, with the installed TVM's scheduler."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.tuning.test_result import result
from tests.tuning.test_screening import NETWORKS, fresh, screening
from tvm_gnn_cost.progress import Event, Stage
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.tuning.listener import ResultListener
from tvm_gnn_cost.tuning.result import TaskResult, TuneResult
from tvm_gnn_cost.tuning.search import open_tasks, search


@pytest.mark.needs("tvm")
def test_tasks_are_screened_then_searched_until_the_budget_is_spent(tmp_path: Path, checkpoint: str) -> None:
    tasks = scheduler().tasks(scheduler().network(NETWORKS[scheduler().name]), scheduler().target())

    def run(result: TuneResult) -> list[Stage]:
        events: list[Event] = []
        model = scheduler().cost_model(checkpoint, 0, 4, 2)
        before = result.trials
        listener = Counting(result, tmp_path, events.append, lambda: False)
        search(scheduler(), tasks, model, screening(model), listener)
        # Whoever follows a search hears of both of its parts.
        assert listener.heard == result.trials - before
        return [event for event in events if isinstance(event, Stage)]

    class Counting(ResultListener):
        heard = 0

        def measured(self, task: int, latencies: Sequence[float]) -> None:
            self.heard += len(latencies)
            super().measured(task, latencies)

    result = fresh(tasks, trials=8)
    assert run(result) == [Stage("searching")]
    # A batch is measured whole.
    assert 8 <= result.trials <= 9
    assert sum(map(len, scheduler().latencies(tasks, tmp_path))) == result.trials
    assert max(task.trials for task in result.tasks) > 1
    assert [point.latency for point in result.curve] == sorted((point.latency for point in result.curve), reverse=True)
    more = fresh(tasks, trials=result.trials + 2)
    more.recount_trials(scheduler().latencies(tasks, tmp_path))
    before = more.trials
    assert run(more) == [Stage(f"learning from the {before} programs measured before"), Stage("searching")]
    assert more.trials > before
    # Nothing is measured where the budget is spent already.
    spent = fresh(tasks, trials=1)
    spent.recount_trials(scheduler().latencies(tasks, tmp_path))
    run(spent)
    assert sum(map(len, scheduler().latencies(tasks, tmp_path))) == more.trials


def test_of_two_tasks_that_compute_the_same_a_slow_one_is_given_up() -> None:
    def task(best: float | None, **fields: Any) -> TaskResult:
        return TaskResult("a", 1, None, best, trials=0 if best is None else 4, **fields)

    def is_open(*tasks: TaskResult) -> list[bool]:
        return open_tasks(replace(result(), tasks=list(tasks)))

    assert is_open(task(1.0), task(None), task(2.0)) == [True, False, True]
    assert is_open(task(1.0), task(1.1, instead_of=0)) == [True, True]
    assert is_open(task(1.0), task(1.3, instead_of=0)) == [True, False]
    assert is_open(task(1.3), task(1.0, instead_of=0)) == [False, True]
    # All of its programs are measured.
    assert is_open(task(1.3), task(1.0, instead_of=0, exhausted=True)) == [False, False]
