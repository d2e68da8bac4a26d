from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command import assert_mistake, call, call_json


def test_noisy_tasks_are_listed_and_removed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    seconds = {"calm": [1.0, 1.01], "noisy": [1.0, 2.0]}
    for name, lines in {
        "database_tuning_record.json": [[0, [[], values, {}, []]] for values in seconds.values()],
        "measurements.jsonl": [{"task": task} for task in seconds],
        "tasks.jsonl": [{"hash": task, "name": task.upper()} for task in seconds],
    }.items():
        (tmp_path / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    code, _, err = call(capfd, "check-data", tmp_path)
    assert code == 0
    assert "0.333  NOISY" in err
    found = call_json(capfd, "check-data", tmp_path, "--drop")
    assert found["noisy"] == [["NOISY", pytest.approx(1 / 3)]]
    assert (found["tasks"], found["dropped"]) == (2, 1)


def test_another_folder_is_refused(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert_mistake(call(capfd, "check-data", tmp_path), "has no database_tuning_record.json")
