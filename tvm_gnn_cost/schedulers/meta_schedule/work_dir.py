"""Reads the tuning records in a work directory's MetaSchedule database."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.datasets.records import RECORDS, WORKLOADS
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import drop_broken_last_line, write_text
from tvm_gnn_cost.schedulers.database.records import FAILED_RUN_SECS, read_database
from tvm_gnn_cost.schedulers.meta_schedule.sampling import workload_of
from tvm_gnn_cost.schedulers.scheduler import Outcome, Task, median_repeat


def open_database(work_dir: Path) -> ms.Database:
    """Opens the database in a folder, or a new one.

    Raises:
        InputError: a line of the database is damaged.
    """
    for name in (WORKLOADS, RECORDS):
        drop_broken_last_line(work_dir / name)
    # Some damaged lines crash TVM.
    problems = read_database(work_dir).problems if (work_dir / RECORDS).exists() else ()
    if problems:
        raise InputError(f"{problems[0]}; the database is damaged, choose another folder")
    return ms.database.JSONDatabase(work_dir=str(work_dir))


def latencies_of(ran: Sequence[ms.runner.RunnerResult]) -> list[float]:
    """Latencies of programs in seconds; infinite for a failure."""
    return [
        float("inf") if result.error_msg else median_repeat([float(seconds) for seconds in result.run_secs or ()])
        for result in ran
    ]


def latency(record: Any) -> float:
    """The median of a record's repeats in seconds; infinite if the program failed."""
    seconds = median_repeat([float(seconds) for seconds in record.run_secs])
    return seconds if seconds < FAILED_RUN_SECS else float("inf")


def records_by_task(tasks: Sequence[Task], database: ms.Database) -> list[list[Any]]:
    """The database's records of each task, the fastest first."""
    places = {task.key: i for i, task in enumerate(tasks)}
    by_task: list[list[Any]] = [[] for _ in tasks]
    for record in database.get_all_tuning_records():
        place = places.get(ms.utils.shash2hex(record.workload.mod))
        if place is not None and record.run_secs:
            by_task[place].append(record)
    # TVM sorts them by the mean of the repeats.
    return [sorted(records, key=latency) for records in by_task]


def commit(
    database: ms.Database, task: Task, candidates: Sequence[Any], outcomes: Sequence[Outcome], target: Any
) -> None:
    """Adds a record for each measured candidate of a task."""
    workload = database.commit_workload(workload_of(task))
    for candidate, outcome in zip(candidates, outcomes, strict=True):
        seconds = list(outcome.seconds) or [FAILED_RUN_SECS]
        database.commit_tuning_record(
            ms.database.TuningRecord(candidate.sch.trace, workload, seconds, target, candidate.args_info)
        )


def strike(task: Task, candidate: ms.MeasureCandidate, work_dir: Path) -> None:
    """Marks the records of a program as failed.

    Raises:
        InputError: the database is damaged.
    """
    database, program = read_database(work_dir), ms.utils.shash2hex(candidate.sch.mod)
    lines = (work_dir / RECORDS).read_text().splitlines()
    for record in database.records:
        is_of_task = record.run_secs and database.workload(record).hash == task.key
        if is_of_task and ms.utils.shash2hex(database.replay(record).sch.mod) == program:
            workload, (trace, _, *others) = json.loads(lines[record.line - 1])
            lines[record.line - 1] = json.dumps([workload, [trace, [FAILED_RUN_SECS], *others]])
    write_text(work_dir / RECORDS, "".join(f"{line}\n" for line in lines))


def fastest(tasks: Sequence[Task], database: ms.Database) -> ms.Database:
    """An in-memory database with the fastest record of each task."""
    best = ms.database.MemoryDatabase()
    for task, records in zip(tasks, records_by_task(tasks, database), strict=True):
        record = min(records, key=latency)
        workload = best.commit_workload(workload_of(task))
        best.commit_tuning_record(
            ms.database.TuningRecord(record.trace, workload, record.run_secs, record.target, record.args_info)
        )
    return best
