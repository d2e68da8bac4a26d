from __future__ import annotations

import json
import lzma
from pathlib import Path

import pytest

from tvm_gnn_cost import InputError, check_data

TASKS = ("calm", "noisy", "calm", "noisy", "calm")
SECONDS = {"calm": [1.0, 1.02, 1.01, 1.0], "noisy": [1.0, 2.0, 1.0, 3.0]}
RECORDS = [json.dumps([number, [[], SECONDS[task], {}, []]]) for number, task in enumerate(TASKS)]
MEASUREMENTS = [json.dumps({"task": task}) for task in TASKS]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    known = [json.dumps({"hash": task, "name": f"task {task}"}) for task in SECONDS]
    contents = {"database_tuning_record.json": RECORDS, "measurements.jsonl": MEASUREMENTS, "tasks.jsonl": known}
    for name, lines in contents.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    return tmp_path


def test_tasks_whose_repeats_disagree_are_listed_and_nothing_changes(folder: Path) -> None:
    result = check_data(folder)
    assert (result.tasks, result.dropped) == (2, 0)
    assert result.noisy == [("task noisy", pytest.approx(0.4738, abs=1e-4))]
    assert not check_data(str(folder), limit=0.5).noisy
    assert (folder / "measurements.jsonl").read_text().splitlines() == MEASUREMENTS


@pytest.mark.parametrize("compressed", [False, True])
def test_their_programs_are_removed(folder: Path, compressed: bool) -> None:
    if compressed:
        for path in list(folder.iterdir()):
            path.with_name(f"{path.name}.xz").write_bytes(lzma.compress(path.read_bytes()))
            path.unlink()
    assert check_data(folder, drop=True).dropped == 2
    assert (folder / "measurements.jsonl").read_text().splitlines() == MEASUREMENTS[::2]
    assert (folder / "database_tuning_record.json").read_text().splitlines() == RECORDS[::2]
    assert not check_data(folder, drop=True).noisy


@pytest.mark.parametrize("line", ["", "null", "{", '{"other": 1}', '"text"'])
def test_a_line_that_is_not_a_measurement_is_named(folder: Path, line: str) -> None:
    (folder / "measurements.jsonl").write_text("\n".join([*MEASUREMENTS[:3], line, MEASUREMENTS[4]]))
    with pytest.raises(InputError, match=r"line 4 of .*database_tuning_record.json and measurements.jsonl"):
        check_data(folder, drop=True)
    assert (folder / "database_tuning_record.json").read_text().splitlines() == RECORDS


def test_a_file_that_is_shorter_than_the_other_is_refused(folder: Path) -> None:
    (folder / "measurements.jsonl").write_text("\n".join(MEASUREMENTS[:3]))
    with pytest.raises(InputError, match="line 4 of"):
        check_data(folder)


def test_another_folder_and_a_damaged_file_are_refused(folder: Path) -> None:
    (folder / "measurements.jsonl").rename(folder / "measurements.jsonl.xz")
    with pytest.raises(InputError, match="cut off or damaged"):
        check_data(folder)
    (folder / "measurements.jsonl.xz").unlink()
    with pytest.raises(InputError, match=r"has no measurements.jsonl; expected a folder that 'collect' wrote"):
        check_data(folder)
