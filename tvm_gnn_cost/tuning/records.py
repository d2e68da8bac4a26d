"""The tuning records in a work directory's MetaSchedule database; talks to TVM."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.datasets.meta_schedule import FAILED_RUN_SECS
from tvm_gnn_cost.datasets.records import drop_broken_last_line
from tvm_gnn_cost.tuning.result import TuneResult

#: The file in which MetaSchedule's JSONDatabase keeps its records.
RECORDS = "database_tuning_record.json"


def open_database(work_dir: Path) -> ms.Database:
    """The database in ``work_dir``, which is made if it is not there."""
    for name in ("database_workload.json", RECORDS):
        drop_broken_last_line(work_dir / name)
    return ms.database.JSONDatabase(work_dir=str(work_dir))


def mean_latency(run_secs: Sequence[Any]) -> float:
    """Seconds, over the repeats of a measurement."""
    return sum(map(float, run_secs)) / len(run_secs)


def is_valid(record: Any) -> bool:
    """Whether the record's program was built and run."""
    return mean_latency(record.run_secs) < FAILED_RUN_SECS


def records_by_task(tasks: Sequence[Any], database: ms.Database) -> list[list[Any]]:
    """The database's records of each task."""
    places = {ms.utils.shash2hex(task.dispatched[0]): i for i, task in enumerate(tasks)}
    by_task: list[list[Any]] = [[] for _ in tasks]
    for record in database.get_all_tuning_records():
        place = places.get(ms.utils.shash2hex(record.workload.mod))
        if place is not None and record.run_secs:
            by_task[place].append(record)
    return by_task


def count(result: TuneResult, by_task: Sequence[Sequence[Any]]) -> None:
    """Takes what is in the database over into the result: it is what a kill can't leave behind the times."""
    for task, records in zip(result.tasks, by_task, strict=True):
        latencies = [mean_latency(record.run_secs) for record in records]
        valid = [latency for latency in latencies if latency < FAILED_RUN_SECS]
        task.trials, task.failed = len(latencies), len(latencies) - len(valid)
        task.best = min(valid, default=None)


def winners(tasks: Sequence[Any], database: ms.Database, result: TuneResult) -> ms.Database:
    """A database with the best record of each task that beats its default schedule, and nothing else."""
    best = ms.database.MemoryDatabase()
    for task, records, found in zip(tasks, records_by_task(tasks, database), result.tasks, strict=True):
        if found.improved:
            record = min(records, key=lambda one: mean_latency(one.run_secs))
            workload = best.commit_workload(task.dispatched[0])
            best.commit_tuning_record(
                ms.database.TuningRecord(record.trace, workload, record.run_secs, record.target, record.args_info)
            )
    return best
