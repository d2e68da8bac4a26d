"""The search of a perceptron's tasks, with the scheduler of the installed TVM."""

from __future__ import annotations

import doctest
import math
import os
import signal
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tuning.test_result import result
from tvm_gnn_cost.errors import WorkError
from tvm_gnn_cost.measuring.bandwidth import CopySpeed
from tvm_gnn_cost.progress import Event, Note, Stage, TrialsMeasured, ignore
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.schedulers.scheduler import Task
from tvm_gnn_cost.tuning import search as module
from tvm_gnn_cost.tuning.result import Settings, TaskResult, TuneResult, load_result
from tvm_gnn_cost.tuning.search import ResultListener, Screening, interruptible, numbers_of_samples, open_tasks, search

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
    return Screening(scheduler(), model, scheduler().target(), defaultdict(lambda: samples), seed=0)


def test_more_candidates_of_larger_tasks_are_scored() -> None:
    sizes = [(1, 3e9, 0.0), (3, 1e9, 0.0), (2, 0.0, 3e7), (1, 0.0, 1e6), (1, 0.0, 0.0)]
    results = [TaskResult("task", weight, None, flops=flops, bytes=size) for weight, flops, size in sizes]
    tasks = [Task(key, "task", result.weight, None) for key, result in zip("abcde", results, strict=True)]
    assert list(numbers_of_samples(tasks, results).items()) == list(zip("abcde", [512, 512, 218, 24, 24], strict=True))
    assert list(numbers_of_samples(tasks, results, measured=False).values()) == [512, 512, 436, 24, 24]
    assert numbers_of_samples(tasks[:1], results[:1]) == {"a": 512}
    assert numbers_of_samples(tasks[-1:], results[-1:]) == {"e": 24}


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
    assert model.search.model.buffered == sum(task.trials - task.failed for task in result.tasks)
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


def test_a_batch_is_counted_drawn_and_saved(tmp_path: Path) -> None:
    found, events = result(), list[Event]()
    found.seconds = {"mutation": 100.0, "verification": 50.0}
    listener = ResultListener(found, tmp_path, events.append, lambda: True)
    listener.measured(0, [3.0, math.inf])
    listener.spent({"mutation": 1.0, "building": 2.0})
    listener.spent({"mutation": 4.0, "building": 2.5})
    assert events == [TrialsMeasured("a", 2, 8, 7.0)]
    assert found.curve[-1].trials == 2
    # The seconds go on from the earlier run's, and those of this run are not added twice.
    assert 100.0 <= found.curve[-1].seconds < 101.0
    assert found.seconds == {"mutation": 104.0, "building": 2.5, "verification": 50.0, "other": 0.0}
    assert load_result(tmp_path).curve == found.curve
    assert listener.interrupted()


def test_seconds_that_no_phase_accounts_for_are_others(tmp_path: Path) -> None:
    found = replace(result(), seconds={})
    listener = ResultListener(found, tmp_path, ignore, lambda: False)
    time.sleep(0.05)
    listener.spent({"running": 0.01})
    assert found.seconds["running"] == 0.01
    assert 0.04 <= found.seconds["other"] < listener.elapsed
    listener.spent({"running": 0.02})
    assert found.searching_seconds <= listener.elapsed


def test_the_curve_begins_when_every_task_has_a_latency(tmp_path: Path) -> None:
    found = result()
    found.tasks[1].untuned = None
    found.curve = []
    listener = ResultListener(found, tmp_path, ignore, lambda: False)
    listener.measured(0, [3.0])
    assert found.curve == []
    listener.measured(1, [2.0])
    assert [(point.trials, point.latency) for point in found.curve] == [(2, 8.0)]


def test_a_budget_of_trials_or_of_minutes_ends_a_search(tmp_path: Path) -> None:
    found = result()
    listener = ResultListener(found, tmp_path, ignore, lambda: False)
    assert not listener.finished()
    listener.measured(0, [1.0] * 8)
    assert listener.finished()
    found.settings = replace(found.settings, trials=None, minutes=1.0)
    assert not ResultListener(found, tmp_path, ignore, lambda: False).finished()
    found.seconds = {"building": 61.0}
    assert ResultListener(found, tmp_path, ignore, lambda: False).finished()


def test_a_search_without_a_limit_of_trials_ends_when_little_is_expected(tmp_path: Path) -> None:
    found, events = result(), list[Event]()
    listener = ResultListener(found, tmp_path, events.append, lambda: False)
    # The trials that were asked for are measured.
    assert listener.worthwhile(0.0)
    found.settings = replace(found.settings, trials=None, minutes=5.0)
    found.seconds = {"building": 61.0}
    listener = ResultListener(found, tmp_path, events.append, lambda: False)
    assert listener.worthwhile(0.001 * found.latency)
    assert (found.stopped, events) == ("", [])
    assert not listener.worthwhile(0.0001 * found.latency)
    assert found.stopped.startswith("stopped early after 1:01: another batch is expected to gain less than 0.05%")
    assert events == [Note(found.stopped)]


def test_operations_and_bytes_bound_a_task() -> None:
    task = TaskResult("a", 1, None, flops=2.1e9, bytes=3e6)
    copies = [CopySpeed(10**7, 1e9)]
    assert module._floor(task, 1e9, []) == pytest.approx(2.0)
    assert module._floor(task, 1e12, copies) == pytest.approx(2e-3)
    assert module._floor(task, 0.0, []) == 0.0


def test_one_ctrl_c_is_noted_and_the_work_goes_on() -> None:
    before = signal.getsignal(signal.SIGINT)
    with interruptible() as interrupted:
        assert not interrupted()
        os.kill(os.getpid(), signal.SIGINT)
        assert interrupted()
    assert signal.getsignal(signal.SIGINT) is before


def test_an_error_behind_a_ctrl_c_is_the_interruption() -> None:
    def search() -> None:
        with interruptible():
            os.kill(os.getpid(), signal.SIGINT)
            raise RuntimeError("the search ends itself")

    with pytest.raises(KeyboardInterrupt):
        search()


def test_an_error_without_one_stays_what_it_is() -> None:
    with pytest.raises(RuntimeError, match="a real one"), interruptible():
        raise RuntimeError("a real one")


def test_the_second_ctrl_c_ends_at_once() -> None:
    reached = []

    def search() -> None:
        with interruptible():
            os.kill(os.getpid(), signal.SIGINT)
            reached.append("first")
            os.kill(os.getpid(), signal.SIGINT)
            reached.append("second")

    with pytest.raises(KeyboardInterrupt):
        search()
    assert reached == ["first"]
