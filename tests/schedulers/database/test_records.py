from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import tvm

from tests.schedulers.database.small_database import PROGRAMS_PER_TASK, Database, write_lines
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.schedulers.database.records import read_database


def _records(folder: Path) -> list[list]:
    return [json.loads(line) for line in (folder / "database_tuning_record.json").read_text().splitlines()]


def test_a_plain_database_of_tvm_is_read_without_sidecars(database: Database) -> None:
    found = read_database(database.folder)
    assert found.problems == ()
    assert found.card == {}
    assert [found.task(record).hash for record in found.records] == database.task_hashes
    assert [len(record.run_secs) for record in found.records] == [3, 3, 3, 0] * 2
    assert [record.failure for record in found.records] == ["", "", "", "unknown"] * 2
    assert {record.phase for record in found.records} == {""}
    assert json.loads(found.records[0].target)["kind"] == "llvm"


def test_replay_gives_the_module_that_was_measured(database: Database) -> None:
    found = read_database(database.folder)
    for record, mod in zip(found.records, database.mods, strict=True):
        tvm.ir.assert_structural_equal(found.replay(record).sch.mod, mod)


def test_compressed_files_give_the_same(database: Database, copy: Path) -> None:
    for file in copy.iterdir():
        file.with_name(file.name + ".gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    assert read_database(copy).records == read_database(database.folder).records


def test_a_compressed_file_that_is_cut_off_gives_what_it_has(copy: Path) -> None:
    file = copy / "database_tuning_record.json"
    whole = gzip.compress(file.read_bytes())
    file.with_name(file.name + ".gz").write_bytes(whole[:-20])
    file.unlink()
    assert any("cut off" in problem.reason for problem in read_database(copy).problems)


def test_sidecars_say_how_a_program_was_sampled_and_why_it_failed(database: Database, copy: Path) -> None:
    write_lines(copy / "tasks.jsonl", [{"hash": database.task_hashes[0], "name": "dense", "weights": {"net": 2}}])
    write_lines(
        copy / "measurements.jsonl",
        [{"task": key, "phase": "random", "failure": "run-timeout" if i % 4 == 3 else None}
         for i, key in enumerate(database.task_hashes)],
    )  # fmt: skip
    (copy / "card.json").write_text('{"tvm": "0"}')
    found = read_database(copy)
    assert found.problems == ()
    assert found.card == {"tvm": "0"}
    assert {record.phase for record in found.records} == {"random"}
    assert [record.failure for record in found.records] == ["", "", "", "run-timeout"] * 2
    first, last = found.task(found.records[0]), found.task(found.records[-1])
    assert (first.name, first.weights) == ("dense", {"net": 2})
    assert (last.name, last.weights) == (database.task_hashes[-1], {})


def test_sidecar_lines_of_other_records_are_not_believed(database: Database, copy: Path) -> None:
    write_lines(copy / "measurements.jsonl", [{"task": database.task_hashes[-1], "phase": "random"}])
    found = read_database(copy)
    assert len(found.records) == 2 * PROGRAMS_PER_TASK - 1
    assert "measurements.jsonl:1 is about task" in found.problems[0].reason


@pytest.mark.parametrize(
    ("run_secs", "reason"),
    [
        (None, "run_secs is missing"),
        ([], "run_secs is missing"),
        ([0.0, 1e-3], "not a positive number"),
        ([float("nan")], "not a positive number"),
        ([-1.0], "not a positive number"),
        (["fast"], "not a positive number"),
    ],
)
def test_a_record_without_usable_seconds_is_reported_and_left_out(
    copy: Path, run_secs: list[float] | None, reason: str
) -> None:
    records = _records(copy)
    records[1][1][1] = run_secs
    write_lines(copy / "database_tuning_record.json", records)
    found = read_database(copy)
    assert [record.line for record in found.records] == [1, *range(3, 9)]
    assert (found.problems[0].line, len(found.problems)) == (2, 1)
    assert reason in found.problems[0].reason
    assert str(found.problems[0]).startswith(f"{copy / 'database_tuning_record.json'}:2: ")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "not JSON"),
        ("[]", "not a tuning record"),
        ("17", "not a tuning record"),
        ('[0, [["trace", "decisions"], [1.0], {}, []]]', "not a tuning record"),
        ('["0", [[[], []], [1.0], {}, []]]', "not a tuning record"),
        ("[9, [[[], []], [1.0], {}, []]]", "workload 9 is unknown; database_workload.json has 2"),
        ("[-1, [[[], []], [1.0], {}, []]]", "workload -1 is unknown"),
        ("[0, [[[], []], [1.0], null, []]]", "target null is unknown to this TVM"),
        ('[0, [[[], []], [1.0], {"kind": "abacus"}, []]]', "is unknown to this TVM"),
        ("[0, [[[], []], [1.0], {}, null]]", "args_info is missing"),
        ("[" * 100_000, "not JSON"),
        ("\xff\xfe", "not JSON"),
    ],
)
def test_a_broken_record_is_reported_and_left_out(copy: Path, line: str, reason: str) -> None:
    with (copy / "database_tuning_record.json").open("a", encoding="latin-1") as file:
        file.write(line + "\n")
    found = read_database(copy)
    assert len(found.records) == 2 * PROGRAMS_PER_TASK
    assert [problem.line for problem in found.problems] == [9]
    assert reason in found.problems[0].reason


@pytest.mark.parametrize("text", ['["1", "bm90IGEgbW9kdWxl"]', "{", "[]", '["1", "%%%"]', "null"])
def test_records_of_a_broken_workload_are_reported_and_left_out(copy: Path, text: str) -> None:
    file = copy / "database_workload.json"
    file.write_text(text + "\n" + file.read_text().splitlines()[1] + "\n")
    found = read_database(copy)
    assert [record.line for record in found.records] == [5, 6, 7, 8]
    assert [problem.line for problem in found.problems if problem.file == file] == [1]
    assert [problem.line for problem in found.problems if problem.file != file] == [1, 2, 3, 4]


def test_a_trace_that_does_not_apply_is_a_clear_error(copy: Path) -> None:
    records = _records(copy)
    records[0][0] = 1  # the matrix product's trace on the other workload
    write_lines(copy / "database_tuning_record.json", records)
    found = read_database(copy)
    with pytest.raises(InputError, match=r"the trace does not apply to its workload: ."):
        found.replay(found.records[0])


def test_a_folder_without_a_database_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"not a MetaSchedule database: it has no database_workload\.json"):
        read_database(tmp_path)


def test_damaged_sidecars_are_reported(copy: Path) -> None:
    (copy / "card.json").write_text("{")
    (copy / "tasks.jsonl").write_text('[]\n{"hash": 3, "weights": 7}\n')
    found = read_database(copy)
    assert len(found.records) == 2 * PROGRAMS_PER_TASK
    assert sorted(problem.file.name for problem in found.problems) == ["card.json", "tasks.jsonl"]


def test_damaged_arguments_are_a_clear_error(copy: Path) -> None:
    records = _records(copy)
    records[0][1][3] = [["TENSOR"]]
    write_lines(copy / "database_tuning_record.json", records)
    found = read_database(copy)
    with pytest.raises(InputError, match="args_info cannot be read"):
        found.replay(found.records[0])
