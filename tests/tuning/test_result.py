from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tuning.result import (
    FILE_NAME,
    CurvePoint,
    EndToEnd,
    Settings,
    TaskResult,
    TuneResult,
    load_result,
    resume,
)

SETTINGS = Settings("net", 8, "gnn", 0, "{}", 2, 16)


def result() -> TuneResult:
    return TuneResult(
        SETTINGS,
        {"processor": "p"},
        {"torch": "1"},
        "2026-01-01",
        tasks=[TaskResult("a", 2, 4.0), TaskResult("b", 1, 1.0)],
        curve=[CurvePoint(0, 0.0, 9.0)],
    )


def test_measured_programs_are_counted() -> None:
    task = TaskResult("a", 1, 4.0)
    task.add([math.inf])
    assert (task.trials, task.failed, task.best, task.improved, task.latency) == (1, 1, None, False, 4.0)
    task.add([5.0, math.inf])
    assert (task.trials, task.failed, task.best, task.improved, task.latency) == (3, 2, 5.0, False, 4.0)
    task.add([3.0, 3.5])
    assert (task.trials, task.failed, task.best, task.improved, task.latency) == (5, 2, 3.0, True, 3.0)


def test_the_records_decide_what_was_measured() -> None:
    found = result()
    found.tasks[0].add([0.5])
    found.recount_trials([[2.0, math.inf], []])
    assert [(task.trials, task.failed, task.best) for task in found.tasks] == [(2, 1, 2.0), (0, 0, None)]
    assert (found.trials, found.latency, found.untuned_latency) == (2, 5.0, 9.0)


def test_a_result_is_read_as_it_was_written(tmp_path: Path) -> None:
    found = result()
    found.end_to_end = EndToEnd([1.0], [0.5], 1e-7, 2e-7)
    found.spend("mutation", 1.0)
    found.spend("mutation", 2.0)
    found.save(tmp_path)
    assert load_result(tmp_path) == found
    assert found.seconds == {"mutation": 3.0}
    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_a_run_is_finished_when_its_budget_is_used_and_it_was_compared() -> None:
    found = result()
    assert not found.finished
    found.searched = 8
    assert not found.finished
    found.end_to_end = EndToEnd([1.0], [0.5], 0.0, 0.0)
    assert found.finished


def test_a_work_directory_is_resumed_with_more_trials_and_no_other_change(tmp_path: Path) -> None:
    assert resume(SETTINGS, tmp_path, "records.json", ("torch",)).tasks == []
    result().save(tmp_path)
    more = Settings("net", 16, "gnn", 0, "{}", 2, 16)
    assert resume(more, tmp_path, "records.json", ("torch",)).settings == more
    with pytest.raises(InputError, match="was tuned with batch 2, not 4"):
        resume(Settings("net", 8, "gnn", 0, "{}", 4, 16), tmp_path, "records.json", ("torch",))


def test_records_without_a_result_and_a_missing_result_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no network was tuned in"):
        load_result(tmp_path)
    (tmp_path / "records.json").write_text("")
    with pytest.raises(InputError, match=r"holds records\.json but no tuning\.json"):
        resume(SETTINGS, tmp_path, "records.json", ("torch",))


@pytest.mark.parametrize("change", [{"settings": {}}, {"tasks": [{"weight": 1}]}, {"end_to_end": 3}])
def test_a_damaged_result_is_named(tmp_path: Path, change: dict[str, object]) -> None:
    result().save(tmp_path)
    whole = json.loads((tmp_path / FILE_NAME).read_text())
    (tmp_path / FILE_NAME).write_text(json.dumps(whole | change))
    with pytest.raises(InputError, match=r"is not a tuning result \(.*remove the file"):
        load_result(tmp_path)
