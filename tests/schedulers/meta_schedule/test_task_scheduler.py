from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from tvm_gnn_cost.schedulers.meta_schedule.task_scheduler import EagerGradient


def gain(*best: float) -> float:
    return EagerGradient(alpha=0.5, window=2)._inst._gain(best)


def test_what_a_task_may_gain() -> None:
    # (8 - 2) / 2 a batch lately, and 2 s spread over its four batches.
    assert gain(9.0, 8.0, 4.0, 2.0) == pytest.approx(0.5 * 3.0 + 0.5 * 0.5)
    # Too few batches to tell: as much as there is left.
    assert gain(4.0, 2.0) == pytest.approx(0.5 * 2.0 + 0.5 * 1.0)
    assert gain(math.inf, math.inf, 2.0) == pytest.approx(0.5 * 2.0 + 0.5 * 2.0 / 3)
    # A long stand-still is worth less than a fresh task of the same latency, and what never ran is worth nothing.
    assert gain(2.0, 2.0, 2.0, 2.0) < gain(2.0)
    assert gain(math.inf) == gain() == 0.0


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


def order(search: Search) -> list[int]:
    scheduler = EagerGradient()._inst
    scheduler._outer = lambda: search
    scheduler.join_running_task = search.join_running_task
    chosen = []
    while (task := scheduler.next_task_id()) >= 0:
        chosen.append(task)
    return chosen


def test_every_task_has_its_turn_then_the_one_with_the_most_to_gain() -> None:
    search = Search((1.0, [[0.1]] * 5), (1.0, [[9.0], [8.0], [8.0]]), (1.0, [[1.0]] * 3))
    chosen = order(search)
    assert chosen[:4] == [0, 1, 2, 1]
    assert sorted(chosen) == [0] * 5 + [1] * 3 + [2] * 3
    # A batch is taken in before the next one is chosen.
    assert search.joined == chosen


def test_a_weight_counts_as_often_as_the_task_occurs() -> None:
    assert order(Search((1.0, [[2.0]] * 3), (100.0, [[1.0]] * 3)))[:3] == [0, 1, 1]


def test_tasks_that_have_ended_or_never_ran_come_last() -> None:
    assert order(Search((1.0, []), (1.0, [[math.inf]] * 2), (1.0, [[1.0]] * 3))) == [1, 2, 2, 2, 1]
    assert order(Search()) == []
