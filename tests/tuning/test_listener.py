from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path

from tests.tuning.test_result import result
from tvm_gnn_cost.progress import Event, TrialsMeasured, ignore
from tvm_gnn_cost.tuning.listener import ResultListener
from tvm_gnn_cost.tuning.result import load_result


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
