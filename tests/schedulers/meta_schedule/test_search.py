from __future__ import annotations

import doctest
import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.schedulers.conftest import Listener
from tvm_gnn_cost.progress import Step
from tvm_gnn_cost.schedulers.meta_schedule import search as module
from tvm_gnn_cost.schedulers.meta_schedule.search import EagerGradient, ExpectedGain, phase_seconds
from tvm_gnn_cost.schedulers.scheduler import Task


def test_the_timers_of_each_phase_are_added() -> None:
    timers = {
        "InitializeTask": 1.0,
        "EvoSearch/SampleInitPopulation": 2.0,
        "EvoSearch/PickBestFromDatabase": 4.0,
        "EvoSearch/Evolve/Mutation": 8.0,
        "EvoSearch/Evolve/PredictNormalizedScore": 16.0,
        "MeasureCallback/UpdateCostModel": 32.0,
        "SendToBuilder": 64.0,
        "SendToRunner": 128.0,
        "JoinRunnerFutures": 256.0,
        # Holds others.
        "EvoSearch/Evolve": 1e6,
    }
    assert phase_seconds(timers) == {
        "initial population": 7.0,
        "mutation": 8.0,
        "prediction": 16.0,
        "model update": 32.0,
        "building": 64.0,
        "running": 384.0,
    }
    assert set(phase_seconds({}).values()) == {0.0}


def test_every_phase_is_timed(searched: tuple[Path, Listener]) -> None:
    _, listener = searched
    assert list(listener.seconds) == list(phase_seconds({}))
    assert all(seconds >= 0 for seconds in listener.seconds.values())
    for phase in ("initial population", "mutation", "building", "running"):
        assert listener.seconds[phase] > 0


def test_each_task_is_measured_before_the_next_one_is_searched(
    searched: tuple[Path, Listener], tasks: list[Task]
) -> None:
    _, listener = searched
    assert listener.events == [
        *(Step(f"{step}: {task.name}") for task in tasks[:2] for step in ("searching", "building", "running")),
    ]
    assert [number for number, _ in listener.batches] == [0, 1]


def test_tvms_output_is_in_the_work_directory(searched: tuple[Path, Listener]) -> None:
    work_dir, _ = searched
    assert (work_dir / "logs" / "stderr.log").is_file()
    (log,) = (work_dir / "logs").glob("*task_scheduler.log")
    assert "Sending 2 sample(s) to builder" in log.read_text()


def gain(latency: float, *batches: float, floor: float = 0.0) -> float:
    found = ExpectedGain(latency, floor)
    for batch in batches:
        found.add([math.inf, batch])
    return found.seconds


def test_its_examples_hold() -> None:
    assert doctest.testmod(module, extraglobs={"math": math}).failed == 0


def test_a_task_rests_while_it_does_not_improve() -> None:
    assert gain(8.0) == pytest.approx(8 * 0.35)
    assert gain(8.0, 8.0, 9.0, 8.0) == pytest.approx(8 * 0.35 * 0.65**3)
    # Less than 1% is noise.
    assert gain(8.0, 8.0, 7.95) == pytest.approx(8 * 0.35 * 0.65**2)


def test_a_task_that_improves_may_improve_again() -> None:
    assert gain(8.0, 8.0, 8.0, 8.0, 4.0) == pytest.approx(4 * 0.65)
    # It can't gain more than is left.
    assert gain(8.0, 1.0, floor=0.5) == pytest.approx(0.5)


def test_no_task_gains_more_than_is_left_above_its_floor() -> None:
    assert gain(4.0, 2.0, floor=1.9) == pytest.approx(0.1)
    assert gain(4.0, floor=5.0) == 0.0
    assert gain(0.0, floor=1.0) == 0.0


def test_a_task_that_never_ran_is_tried_three_times() -> None:
    assert gain(math.inf) == gain(math.inf, math.inf, math.inf) == math.inf
    assert gain(*[math.inf] * 4) == 0.0
    assert gain(math.inf, 4.0) == pytest.approx(4 * 0.35)


class Search:
    """Tasks that TVM would run: each has latencies by batch, and ends with the last one."""

    def __init__(self, *tasks: tuple[float, list[list[float]]]) -> None:
        self.batches = [list(batches) for _, batches in tasks]
        self.tasks_ = [SimpleNamespace(task_weight=weight, is_terminated=not batches) for weight, batches in tasks]
        self.joined: list[int] = []

    def join_running_task(self, task: int) -> list[Any]:
        self.joined.append(task)
        latencies = self.batches[task].pop(0)
        self.tasks_[task].is_terminated = not self.batches[task]
        return [
            SimpleNamespace(run_secs=[one], error_msg=None)
            if one < math.inf
            else SimpleNamespace(run_secs=None, error_msg="")
            for one in latencies
        ]


def order(
    search: Search, *latencies: float, floors: Sequence[float] = (), budget: float = math.inf, least: float = 0.0
) -> list[int]:
    chosen: list[int] = []
    listener = Listener(least=least)
    listener.finished = lambda: len(chosen) >= budget  # type: ignore[method-assign]
    scheduler = EagerGradient(latencies, floors or [0.0] * len(latencies), listener)._inst
    scheduler._outer = lambda: search
    scheduler.join_running_task = search.join_running_task
    while (task := scheduler.next_task_id()) >= 0:
        chosen.append(task)
    return chosen


def test_the_task_with_the_most_to_gain_is_next() -> None:
    search = Search((1.0, [[0.1]] * 5), (1.0, [[8.0], [7.0], [6.0]]), (1.0, [[1.0]] * 3))
    chosen = order(search, 0.1, 9.0, 1.0)
    assert chosen[:3] == [1, 1, 1]
    assert sorted(chosen) == [0] * 5 + [1] * 3 + [2] * 3
    # A batch is taken in before the next one is chosen.
    assert search.joined == chosen


def test_a_weight_counts_as_often_as_the_task_occurs() -> None:
    assert order(Search((1.0, [[2.0]] * 3), (100.0, [[1.0]] * 3)), 2.0, 1.0)[:3] == [1, 1, 1]


def test_a_task_that_needs_no_measurement_comes_last() -> None:
    assert order(Search((1.0, [[1.0]]), (1.0, [[1.0]] * 2)), 0.0, 1.0) == [1, 1, 0]


def test_tasks_that_have_ended_are_not_chosen() -> None:
    assert order(Search((1.0, []), (1.0, [[math.inf]] * 2), (1.0, [[1.0]] * 3)), 1.0, math.inf, 1.0) == [1, 1, 2, 2, 2]
    assert order(Search()) == []


def test_a_slow_task_that_does_not_improve_leaves_the_batches_to_the_others() -> None:
    """As in a GPT-2: 396 of 435 programs went to the product with the vocabulary, which takes 15.6 of 20 ms."""
    stuck, others = 15.6e-3, [0.5e-3] * 8
    improving = [[0.45e-3], [0.4e-3], [0.3e-3], *[[0.3e-3]] * 60]
    tasks = [(1.0, [[stuck]] * 60), *((1.0, list(improving)) for _ in others)]
    chosen = order(Search(*tasks), stuck, *others, floors=[6e-3, *[0.2e-3] * 8], budget=55)
    assert chosen.count(0) <= 16
    assert all(chosen.count(task) >= 3 for task in range(1, 9))
    # It ends by itself once no task may gain a thousandth of the network.
    alone = order(Search(*tasks), stuck, *others, floors=[6e-3, *[0.2e-3] * 8], least=20e-6)
    assert 40 < len(alone) < 70
    assert all(alone.count(task) >= 3 for task in range(1, 9))


def test_no_batch_is_measured_that_is_not_worthwhile() -> None:
    search = Search((1.0, [[8.0]] * 9), (2.0, [[1.0]] * 9))
    # 2.8, 1.8, 1.2 and 0.8 of the first task, and 0.7 of the second one.
    assert sorted(order(search, 8.0, 1.0, least=0.75)) == [0, 0, 0, 0]
    assert sorted(order(search, 8.0, 1.0, least=0.65)) == [0, 0, 0, 0, 1]


def test_the_search_ends_with_its_budget_and_the_last_batch_is_taken_in() -> None:
    search = Search((1.0, [[1.0]] * 5))
    assert order(search, 1.0, budget=2) == [0, 0]
    assert search.joined == [0, 0]
