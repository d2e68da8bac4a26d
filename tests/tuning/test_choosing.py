from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from tests.tuning.wrong_schedules import Schedules, chooser_of
from tvm_gnn_cost.tuning.result import StruckOff, load_result


def test_a_wrong_choice_of_the_model_gives_way_to_the_next(tmp_path: Path) -> None:
    schedules = Schedules(ranked={"a": ["right", "other"], "b": ["wrong 1", "wrong 2", "right"], "c": []})
    chooser, notes = chooser_of(schedules, tmp_path)
    choice = chooser.choose()
    assert [(task.key, one) for task, one in choice.chosen] == [("a", "right"), ("b", "right")]
    assert choice.tuned == []
    assert chooser.result.struck == [
        StruckOff("task b", "computes something else", f"b: wrong {number}") for number in (1, 2)
    ]
    assert notes == ["a program of task b is struck off: it computes something else"] * 2
    assert load_result(tmp_path).struck == chooser.result.struck


def test_a_task_of_which_nothing_is_right_keeps_its_default_schedule(tmp_path: Path) -> None:
    schedules = Schedules(ranked={"a": [f"wrong {number}" for number in range(9)]})
    chooser, notes = chooser_of(schedules, tmp_path)
    choice = chooser.choose()
    assert (choice.tuned, choice.chosen) == ([], [])
    assert len(notes) == len(schedules.verified) == 4
    # It is not tried again.
    assert chooser.choose().chosen == []
    assert len(schedules.verified) == 4


def test_the_next_fastest_record_takes_the_place_of_a_wrong_one(tmp_path: Path) -> None:
    schedules = Schedules(recorded={"a": [(3.0, "slow"), (1.0, "wrong"), (2.0, "right")], "b": [(1.0, "good")]})
    chooser, notes = chooser_of(schedules, tmp_path, untuned=2.5)
    choice = chooser.choose()
    assert [task.key for task in choice.tuned] == ["a", "b"]
    assert schedules.best(choice.tuned, tmp_path) == ["right", "good"]
    assert [task.best for task in chooser.result.tasks] == [2.0, 1.0]
    assert chooser.result.tasks[0].failed == 1
    assert len(notes) == 1
    before = list(schedules.verified)
    assert chooser.choose() == choice
    assert schedules.verified == before == ["wrong", "good", "right"]


def test_the_default_schedule_takes_the_place_of_a_wrong_record_that_alone_was_faster(tmp_path: Path) -> None:
    schedules = Schedules(recorded={"a": [(3.0, "slow"), (1.0, "wrong")]})
    chooser, _ = chooser_of(schedules, tmp_path, untuned=2.5)
    assert chooser.choose().tuned == []
    assert chooser.result.latency == 2.5


def test_the_model_chooses_where_every_record_is_wrong(tmp_path: Path) -> None:
    schedules = Schedules(ranked={"a": ["right"]}, recorded={"a": [(3.0, "wrong"), (1.0, "wrong too")]})
    chooser, notes = chooser_of(schedules, tmp_path)
    choice = chooser.choose()
    assert [one for _, one in choice.chosen] == ["right"]
    assert math.isinf(chooser.result.latency)
    assert len(notes) == 2


def test_many_tasks_are_chosen_in_their_order(tmp_path: Path) -> None:
    schedules = Schedules(ranked={f"{number:02}": [f"right {number}"] for number in range(30)})
    chooser, _ = chooser_of(schedules, tmp_path)
    assert [one for _, one in chooser.choose().chosen] == [f"right {number}" for number in range(30)]


def test_the_model_chooses_where_the_search_measured_only_the_default_schedule(tmp_path: Path) -> None:
    schedules = Schedules(ranked={"a": ["right"], "b": ["other"]}, recorded={"b": [(3.0, "slower than the default")]})
    chooser, _ = chooser_of(schedules, tmp_path, untuned=2.5)
    choice = chooser.choose()
    assert (choice.tuned, [one for _, one in choice.chosen]) == ([], ["right"])


def test_a_task_whose_replacement_has_no_right_schedule_is_not_replaced(tmp_path: Path) -> None:
    for replacement in ([], ["wrong"]):
        schedules = Schedules(ranked={"direct": ["right"], "winograd": replacement})
        chooser, _ = chooser_of(schedules, tmp_path)
        chooser.result.tasks[1].instead_of = 0
        chooser.tasks = [chooser.tasks[0], replace(chooser.tasks[1], instead_of="direct")]
        choice = chooser.choose()
        assert [(task.key, one) for task, one in choice.chosen] == [("direct", "right")]
        assert chooser.choose() == choice
