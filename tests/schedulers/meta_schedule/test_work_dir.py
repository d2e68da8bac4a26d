from __future__ import annotations

import shutil
import statistics
from pathlib import Path
from types import SimpleNamespace

import pytest
from tvm.s_tir import meta_schedule as ms

from tests.schedulers.database.small_database import PROGRAMS_PER_TASK, Database
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.schedulers.database.records import read_database
from tvm_gnn_cost.schedulers.meta_schedule.work_dir import (
    fastest,
    latencies_of,
    latency,
    open_database,
    records_by_task,
    strike,
)
from tvm_gnn_cost.schedulers.scheduler import Task


@pytest.fixture
def tasks(database: Database) -> list[Task]:
    """Those of the small database, and one that has no records there, in between."""
    one, two = read_database(database.folder).workloads
    assert one is not None
    assert two is not None
    made = [Task(each.hash, each.hash, 1, SimpleNamespace(dispatched=[each.mod])) for each in (one, two)]
    return [made[0], Task("0x0", "other", 1, SimpleNamespace(dispatched=[])), made[1]]


def test_a_new_folder_has_an_empty_database(tmp_path: Path) -> None:
    assert len(open_database(tmp_path).get_all_tuning_records()) == 0


def test_records_are_found_by_task_the_fastest_first(database: Database, tasks: list[Task]) -> None:
    one, none, two = records_by_task(tasks, open_database(database.folder))
    assert (len(one), len(none), len(two)) == (PROGRAMS_PER_TASK, 0, PROGRAMS_PER_TASK)
    for records in (one, two):
        latencies = [latency(record) for record in records]
        assert latencies == sorted(latencies)
        # The last one of each task failed.
        assert latencies[-1] == float("inf") > latencies[-2] == statistics.median(map(float, records[-2].run_secs))


def test_a_latency_is_the_median_of_the_repeats() -> None:
    assert latency(SimpleNamespace(run_secs=[5.0, 1.0, 2.0])) == 2.0
    assert latency(SimpleNamespace(run_secs=[1e10])) == float("inf")


def test_a_program_that_failed_has_an_infinite_latency() -> None:
    ran = [ms.runner.RunnerResult([1.0, 3.0, 2.0], None), ms.runner.RunnerResult(None, "it crashed")]
    assert latencies_of(ran) == [2.0, float("inf")]


def test_the_fastest_records_are_a_database(database: Database, tasks: list[Task]) -> None:
    whole = open_database(database.folder)
    best = fastest([tasks[0]], whole)
    (record,) = best.get_all_tuning_records()
    assert latency(record) == min(map(latency, records_by_task(tasks, whole)[0]))
    assert ms.utils.shash2hex(record.workload.mod) == tasks[0].key
    assert len(fastest([tasks[2], tasks[0]], whole).get_all_tuning_records()) == 2
    assert len(fastest([], whole).get_all_tuning_records()) == 0


def test_a_record_that_is_struck_off_has_failed(copy: Path, tasks: list[Task]) -> None:
    before = records_by_task(tasks, open_database(copy))
    strike(tasks[0], before[0][0].as_measure_candidate(), copy)
    after = records_by_task(tasks, open_database(copy))
    assert [latency(one) for one in after[0]] == [*map(latency, before[0][1:]), float("inf")]
    assert [latency(one) for one in after[2]] == [latency(one) for one in before[2]]


def test_half_a_last_line_is_cut_off(copy: Path) -> None:
    records = copy / "database_tuning_record.json"
    whole = records.read_text()
    records.write_text(whole + whole[:40])
    assert len(open_database(copy).get_all_tuning_records()) == 2 * PROGRAMS_PER_TASK
    assert records.read_text() == whole


@pytest.mark.parametrize("damaged", ["no record", "{}", "[7, [[[], []], [1.0], {}, []]]"])
def test_a_damaged_record_is_named_and_crashes_nothing(copy: Path, damaged: str) -> None:
    records = copy / "database_tuning_record.json"
    records.write_text(f"{records.read_text()}{damaged}\n")
    with pytest.raises(InputError, match=rf"{records}:9: .*; the database is damaged, choose another folder"):
        open_database(copy)


def test_damaged_workloads_are_named(copy: Path) -> None:
    workloads = copy / "database_workload.json"
    workloads.write_text("no workload\n" + workloads.read_text())
    with pytest.raises(InputError, match=rf"{workloads}:1: not JSON"):
        open_database(copy)
    workloads.unlink()
    with pytest.raises(FileNotFoundError, match=r"it has no database_workload\.json"):
        open_database(copy)


def test_workloads_may_be_there_before_their_records(database: Database, tmp_path: Path) -> None:
    # As a kill between the two leaves it.
    shutil.copy(database.folder / "database_workload.json", tmp_path)
    assert len(open_database(tmp_path).get_all_tuning_records()) == 0
