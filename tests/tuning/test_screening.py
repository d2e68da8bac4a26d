"""The first look at the tasks of a perceptron, with the installed TVM's scheduler."""

from __future__ import annotations

import doctest
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvm_gnn_cost.errors import WorkError
from tvm_gnn_cost.progress import Event, TrialsMeasured, ignore
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.schedulers.scheduler import Task
from tvm_gnn_cost.tuning import screening as module
from tvm_gnn_cost.tuning.listener import ResultListener
from tvm_gnn_cost.tuning.result import Settings, TaskResult, TuneResult
from tvm_gnn_cost.tuning.screening import Screening

NETWORKS = {"meta-schedule": "perceptron", "auto-scheduler": "mlp"}


def test_its_examples_hold() -> None:
    assert doctest.testmod(module).failed == 0


@pytest.fixture(scope="module")
def tasks() -> list[Task]:
    return scheduler().tasks(scheduler().network(NETWORKS[scheduler().name]), scheduler().target())


def fresh(tasks: list[Task], trials: int = 64) -> TuneResult:
    settings = Settings("net", trials, None, "gnn", 0, "", 2, 16, scheduler().name)
    return TuneResult(settings, {}, {}, "", tasks=[TaskResult(one.name, one.weight, None) for one in tasks])


def screening(model: Any, samples: int = 8) -> Screening:
    return Screening(scheduler(), model, scheduler().target(), samples, seed=0)


@pytest.mark.needs("tvm")
def test_the_candidates_that_the_model_scores_best_are_picked(tasks: list[Task], checkpoint: str) -> None:
    model = scheduler().cost_model(checkpoint, 0, 4, 2)
    task = next(task for task in tasks if "relu" in task.name or "maximum" in task.name)
    found = screening(model)
    picked = found.rank(task)[:3]
    scores = scheduler().score(model, task, found.target, picked)
    assert len(scores) == 3
    assert list(scores) == sorted(scores, reverse=True)
    everything = scheduler().sample(task, found.target, 8, seed=0)
    assert scores[0] == pytest.approx(np.max(scheduler().score(model, task, found.target, everything)))


@pytest.mark.needs("tvm")
def test_every_task_is_measured_recorded_and_learned_from(tasks: list[Task], tmp_path: Path, checkpoint: str) -> None:
    model = scheduler().cost_model(checkpoint, 0, 4, 2)
    found, events = screening(model), list[Event]()
    listener = ResultListener(fresh(tasks), tmp_path, events.append, lambda: False)
    found.measure(tasks, 2, listener)
    result = listener.result
    # All programs of a small design space are measured.
    for task, own in zip(tasks, result.tasks, strict=True):
        programs = len(scheduler().sample(task, found.target, 8, seed=0))
        assert own.exhausted == (programs <= 4)
        assert own.trials == (programs if own.exhausted else 2)
    assert math.isfinite(result.latency)
    recorded = scheduler().latencies(tasks, tmp_path)
    assert [len(own) for own in recorded] == [task.trials for task in result.tasks]
    assert [event.trials for event in events if isinstance(event, TrialsMeasured)][-1] == result.trials
    assert all(found.seconds[phase] > 0 for phase in found.seconds)
    assert found.seconds.items() <= result.seconds.items()
    assert model.search.online.buffer_size == sum(task.trials - task.failed for task in result.tasks)
    # Nothing is left to measure.
    found.measure(tasks, 2, listener)
    assert [len(own) for own in scheduler().latencies(tasks, tmp_path)] == [len(own) for own in recorded]


@pytest.mark.needs("tvm")
def test_tasks_that_cannot_matter_are_not_measured(tasks: list[Task], tmp_path: Path) -> None:
    result = fresh(tasks)
    for task, seconds in zip(result.tasks, (1e-9, 1e-9, 1.0, 1e-9), strict=True):
        task.untuned = seconds
    result.tasks[2].best, result.tasks[2].trials = 1.0, 1
    screening(None).measure(tasks, 2, ResultListener(result, tmp_path, ignore, lambda: False))
    assert result.trials == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.needs("tvm")
def test_the_slowest_task_comes_first_and_the_budget_ends_it(
    tasks: list[Task], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TASKS_AT_ONCE", 1)
    result = fresh(tasks, trials=1)
    for task, seconds in zip(result.tasks, (1.0, 4.0, 2.0, 3.0), strict=True):
        task.untuned = seconds
    model = scheduler().cost_model("random", 0, 4, 2)
    screening(model).measure(tasks, 1, ResultListener(result, tmp_path, ignore, lambda: False))
    assert [task.trials for task in result.tasks] == [0, 1, 0, 0]


@pytest.mark.needs("tvm")
def test_an_interrupted_batch_is_not_recorded(tasks: list[Task], tmp_path: Path) -> None:
    listener = ResultListener(fresh(tasks), tmp_path, ignore, lambda: True)
    with pytest.raises(WorkError, match=r"^interrupted$"):
        screening(scheduler().cost_model("random", 0, 4, 2)).measure(tasks, 1, listener)
    assert not list(tmp_path.iterdir())
