"""Reads and writes the measure records in a work directory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tvm import auto_scheduler
from tvm.auto_scheduler.measure import MeasureInput, MeasureResult
from tvm.auto_scheduler.measure_record import dump_record_to_string

from tvm_gnn_cost.datasets.records import Failure, last_line
from tvm_gnn_cost.datasets.tenset import CODES
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import append_lines, drop_broken_last_line, write_text
from tvm_gnn_cost.schedulers.auto_scheduler.measure import outcome_of
from tvm_gnn_cost.schedulers.auto_scheduler.sampling import steps_of
from tvm_gnn_cost.schedulers.scheduler import Outcome, Task

#: Files of measure records in a work directory: of the search, and of the unscheduled programs.
RECORDS = "records.json"
UNTUNED = "untuned.json"

#: The cost of a failed program in a record.
_NO_COST = 1e10


def read_records(path: Path) -> list[tuple[Any, Any]]:
    """Measure input and result of each record; empty if the file is missing.

    Raises:
        InputError: a line is not a record.
    """
    drop_broken_last_line(path)
    # TVM's reader raises errors of any type.
    try:
        return list(auto_scheduler.RecordReader(str(path))) if path.exists() else []
    except Exception as error:
        raise InputError(f"{path} is damaged, choose another folder ({last_line(error)})") from error


def append_records(path: Path, inputs: Sequence[Any], results: Sequence[Any]) -> None:
    """Adds a record for each measure input and its result to a file; unlike TVM's function, reports a full disk.

    Raises:
        OSError: the file cannot be written.
    """
    append_lines(path, (dump_record_to_string(*pair).strip() for pair in zip(inputs, results, strict=True)))


def latencies(tasks: Sequence[Task], work_dir: Path) -> list[list[float]]:
    """Mean latency in seconds of every program of each task, in the order of the records; infinite if it failed."""
    by_key: dict[str, list[float]] = {task.key: [] for task in tasks}
    for measured, result in read_records(work_dir / RECORDS):
        by_key.get(str(measured.task.workload_key), []).append(outcome_of(result).latency)
    return [by_key[task.key] for task in tasks]


def pairs(task: Task, states: Sequence[Any], outcomes: Sequence[Outcome]) -> tuple[list[Any], list[Any]]:
    """Measure inputs and results of measured states, for TVM's functions."""
    return [MeasureInput(task.workload, state) for state in states], [outcome.result for outcome in outcomes]


def best(tasks: Sequence[Task], work_dir: Path) -> list[Any]:
    """The fastest recorded state of each task; None for a task without a valid record."""
    fastest: dict[str, tuple[float, Any]] = {}
    for measured, result in read_records(work_dir / RECORDS):
        key, latency = str(measured.task.workload_key), outcome_of(result).latency
        if latency < fastest.get(key, (float("inf"), None))[0]:
            fastest[key] = latency, measured
    return [fastest[task.key][1].state if task.key in fastest else None for task in tasks]


def strike(task: Task, state: Any, work_dir: Path) -> None:
    """Marks the records of a program as failed."""
    path = work_dir / RECORDS
    program = steps_of(task.workload, state)
    lines = []
    for measured, result in read_records(path):
        is_wrong = str(measured.task.workload_key) == task.key and steps_of(measured.task, measured.state) == program
        failed = MeasureResult([_NO_COST], CODES[Failure.WRONG_ANSWER], "", 0.0, 0)
        lines.append(dump_record_to_string(measured, failed if is_wrong else result).strip())
    write_text(path, "".join(f"{line}\n" for line in lines))


def unmeasured(task: Task, state: Any) -> tuple[Any, Any]:
    """A made-up record of a state that was not measured, to compile with."""
    return MeasureInput(task.workload, state), MeasureResult([1.0], 0, "", 0.0, 0)


def save_untuned(tasks: Sequence[Task], states: Sequence[Any], outcomes: Sequence[Outcome], work_dir: Path) -> None:
    """Records the unscheduled programs, so that compiling can choose them over slower schedules."""
    path = work_dir / UNTUNED
    path.unlink(missing_ok=True)
    inputs = [MeasureInput(task.workload, state) for task, state in zip(tasks, states, strict=True)]
    append_records(path, inputs, [outcome.result for outcome in outcomes])


def schedules(tuned: Sequence[Task], work_dir: Path) -> list[tuple[Any, Any]]:
    """The records to compile with: of all unscheduled programs, and the search's records of the tuned tasks."""
    keys = {task.key for task in tuned}
    searched = read_records(work_dir / RECORDS)
    return read_records(work_dir / UNTUNED) + [pair for pair in searched if str(pair[0].task.workload_key) in keys]
