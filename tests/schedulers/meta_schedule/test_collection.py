from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import tvm

from tvm_gnn_cost.datasets.records import Failure
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.measuring.card import today
from tvm_gnn_cost.measuring.machine import describe_machine
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.schedulers.database.records import FAILED_RUN_SECS, read_database
from tvm_gnn_cost.schedulers.meta_schedule.collection import DatabaseCollection
from tvm_gnn_cost.schedulers.scheduler import CollectPlan, Outcome, Task

PLAN = CollectPlan(("net",), random=5, guided=1)
RECORDS, WORKLOADS = "database_tuning_record.json", "database_workload.json"
CARD, TASKS, MEASUREMENTS = "card.json", "tasks.jsonl", "measurements.jsonl"


def opened(
    folder: Path, target: Any, tasks: Sequence[Task], plan: CollectPlan = PLAN, workload: str = "net"
) -> DatabaseCollection:
    collection = DatabaseCollection(folder, plan, target, describe_machine())
    collection.open()
    collection.add_tasks([(workload, tasks)])
    return collection


@pytest.fixture(scope="module")
def collected(
    target: Any,
    tasks: list[Task],
    task: Task,
    candidates: list[Any],
    outcomes: list[Outcome],
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """Three random programs, of which the last one failed, and a guided one."""
    folder = tmp_path_factory.mktemp("collection") / "data"
    collection = opened(folder, target, tasks)
    failed = Outcome((), Failure.RUN_TIMEOUT, 500 * "x" + "not done")
    collection.append("random", task, candidates[:3], [*outcomes[:2], failed])
    collection.append("guided", task, candidates[3:4], outcomes[3:4])
    assert collection.count() == (4, 1)
    return folder


@pytest.fixture
def folder(collected: Path, tmp_path: Path) -> Path:
    """A copy to change."""
    return Path(shutil.copytree(collected, tmp_path / "data"))


def test_a_task_with_a_single_program_has_no_guided_programs(target: Any, tasks: list[Task], tmp_path: Path) -> None:
    collection = opened(tmp_path / "data", target, tasks)
    assert [collection.missing(tasks[0], phase) for phase in ("random", "guided")] == [5, 1]
    collection.tasks[tasks[0].key]["exhausted"] = {"random": 0}
    assert [collection.missing(tasks[0], phase) for phase in ("random", "guided")] == [0, 0]


def lines(file: Path) -> list[Any]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_the_database_is_one_of_tvms_with_a_line_beside_each_record(
    collected: Path, task: Task, outcomes: list[Outcome]
) -> None:
    read = read_database(collected)
    assert read.problems == ()
    assert [record.failure for record in read.records] == ["", "", "run-timeout", ""]
    assert [record.phase for record in read.records] == ["random", "random", "random", "guided"]
    assert read.records[0].run_secs == pytest.approx(outcomes[0].seconds)
    assert lines(collected / RECORDS)[2][1][1] == [FAILED_RUN_SECS]
    assert [list(entry) for entry in lines(collected / MEASUREMENTS)] == [["task", "phase", "failure", "message"]] * 4
    assert lines(collected / MEASUREMENTS)[1] == {"task": task.key, "phase": "random", "failure": None, "message": None}
    assert lines(collected / MEASUREMENTS)[2]["message"] == 392 * "x" + "not done"


def test_tasks_gather_their_workloads(folder: Path, target: Any, tasks: list[Task]) -> None:
    assert lines(folder / TASKS) == [{"hash": one.key, "name": one.name, "weights": {"net": 1}} for one in tasks]
    opened(folder, target, tasks[:1], workload="other")
    assert [entry["weights"] for entry in lines(folder / TASKS)] == [{"net": 1, "other": 1}, *[{"net": 1}] * 3]


def test_the_card_has_the_machine_and_every_different_run(folder: Path, target: Any, tasks: list[Task]) -> None:
    card = json.loads((folder / CARD).read_text())
    run = {"date": today(), **asdict(PLAN), "workloads": ["net"]}
    assert card == {
        "runs": [run],
        "target": json.loads(str(target)),
        "machine": describe_machine(),
        "tvm": tvm.__version__,
        "space": "package",
    }
    opened(folder, target, tasks)
    assert json.loads((folder / CARD).read_text()) == card
    opened(folder, target, tasks, CollectPlan(("net",), seed=3))
    assert [one["seed"] for one in json.loads((folder / CARD).read_text())["runs"]] == [0, 3]


def test_what_is_missing_is_counted_by_phase(folder: Path, target: Any, tasks: list[Task], task: Task) -> None:
    collection = opened(folder, target, tasks)
    assert (collection.missing(task, "random"), collection.missing(task, "guided")) == (2, 0)
    other = next(one for one in tasks if one != task)
    assert (collection.missing(other, "random"), collection.missing(other, "guided")) == (5, 1)
    assert len(collection.sample("random", [(task, 2), (other, 1)])) == 2


@pytest.mark.parametrize("longer", [RECORDS, MEASUREMENTS])
def test_a_kill_between_two_writes_loses_one_program(
    folder: Path, target: Any, tasks: list[Task], task: Task, longer: str
) -> None:
    (shorter,) = {RECORDS, MEASUREMENTS} - {longer}
    with (folder / shorter).open("r+") as file:
        file.truncate((folder / shorter).stat().st_size - 5)
    collection = opened(folder, target, tasks)
    assert len(lines(folder / RECORDS)) == len(lines(folder / MEASUREMENTS)) == 3
    assert collection.missing(task, "guided") == 1
    assert collection.count() == (3, 1)
    assert read_database(folder).problems == ()


def test_a_kill_before_the_first_record_leaves_tasks_and_their_numbers_together(
    folder: Path, target: Any, tasks: list[Task], task: Task, candidates: list[Any], outcomes: list[Outcome]
) -> None:
    whole = (folder / WORKLOADS).read_text()
    (other,) = [one for one in tasks if one.key != task.key][:1]
    for left in (whole, whole + whole[:100]):
        shutil.rmtree(folder)
        folder.mkdir()
        (folder / WORKLOADS).write_text(left)
        collection = opened(folder, target, tasks)
        assert collection.count() == (0, 0)
        collection.append("random", task, candidates[:1], outcomes[:1])
        collection.append("random", other, candidates[1:2], outcomes[1:2])
        assert [json.loads(line)[0] for line in (folder / RECORDS).read_text().splitlines()] == [0, 1]
        assert (folder / WORKLOADS).read_text().startswith(whole)
        assert len(lines(folder / WORKLOADS)) == 2


def test_a_plain_database_of_tvm_is_refused_and_keeps_its_records(folder: Path, target: Any, tasks: list[Task]) -> None:
    # Nothing says how its programs were sampled.
    for name in (CARD, TASKS, MEASUREMENTS):
        (folder / name).unlink()
    before = (folder / RECORDS).read_bytes()
    with pytest.raises(InputError, match=rf"{RECORDS} is not of a collection, measurements\.jsonl is missing"):
        opened(folder, target, tasks)
    assert (folder / RECORDS).read_bytes() == before


def test_another_target_is_refused_before_anything_is_written(folder: Path, target: Any) -> None:
    before = {path: path.read_bytes() for path in folder.iterdir()}
    (folder / CARD).write_bytes(before[folder / CARD].replace(b'"llvm"', b'"cuda"'))
    with pytest.raises(InputError, match=r"card\.json: measured with the target .*cuda.* choose another folder"):
        DatabaseCollection(folder, PLAN, target, describe_machine())
    for damaged in ("no JSON", "[]", '{"runs": []}', '{"target": {}, "runs": 3}'):
        (folder / CARD).write_text(damaged)
        with pytest.raises(InputError, match=r"card\.json is not a card of measurements"):
            DatabaseCollection(folder, PLAN, target, describe_machine())
    (folder / CARD).write_bytes(before[folder / CARD])
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


@pytest.mark.parametrize(
    ("name", "line"),
    [
        (TASKS, "no JSON"),
        (TASKS, "[]"),
        (TASKS, '{"hash": 3, "name": "a", "weights": {}}'),
        (TASKS, '{"hash": "0x1"}'),
        (MEASUREMENTS, "no JSON"),
        (MEASUREMENTS, '{"task": "TASK", "failure": null}'),
        (RECORDS, "no JSON"),
        (RECORDS, "{}"),
        (WORKLOADS, "no JSON"),
    ],
)
def test_a_damaged_line_is_named(folder: Path, target: Any, tasks: list[Task], name: str, line: str) -> None:
    (of,) = {entry["task"] for entry in lines(folder / MEASUREMENTS)}
    kept = (folder / name).read_text().splitlines(keepends=True)[1:]
    (folder / name).write_text("".join([line.replace("TASK", of) + "\n", *kept]))
    with pytest.raises(InputError, match=rf"{folder / name}:1: .*choose another folder"):
        opened(folder, target, tasks)


def test_what_a_small_design_space_does_not_have_is_not_asked_for_again(tmp_path: Path, target: Any) -> None:
    tasks = scheduler().tasks_of_workload("pooling/0", target)
    plan = CollectPlan(("pooling/0",), random=40, guided=0)
    collection = opened(tmp_path, target, tasks, plan)
    wanted = [(task, collection.missing(task, "random")) for task in tasks]
    found = {task.key: len(candidates) for task, candidates in collection.sample("random", wanted)}
    # A task that has a single program has none to choose from.
    assert min(found.values()) == 0 or len(tasks) == 1
    assert 1 < max(found.values()) < 40
    for one in (collection, opened(tmp_path, target, tasks, plan)):
        assert {task.key: one.missing(task, "random") for task in tasks} == found


def test_tasks_of_a_workload_are_known_without_making_them(folder: Path, target: Any, tasks: list[Task]) -> None:
    collection = opened(folder, target, tasks[:2], workload="other")
    assert collection.known("other") == tasks[:2]
    assert [task.workload for task in collection.known("net")] == [None] * len(tasks)
    assert collection.known("third") == []


def test_records_of_an_earlier_run_guide_this_one(folder: Path, target: Any, tasks: list[Task], task: Task) -> None:
    collection = opened(folder, target, tasks, CollectPlan(("net",), random=3, guided=4))
    assert len(collection.records[task.key]) == 3
    ((sampled, candidates),) = collection.sample("guided", [(task, 3)])
    assert sampled == task
    assert 0 < len(candidates) <= 3
