"""Reads MetaSchedule databases line by line and replays their records."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import tvm

from tvm_gnn_cost.datasets.programs import TaskInfo
from tvm_gnn_cost.datasets.records import (
    DAMAGED,
    RECORDS,
    WORKLOADS,
    Failure,
    Problem,
    find_file,
    last_line,
    open_file,
    parsed_lines,
    parsed_objects,
)
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import parse_json
from tvm_gnn_cost.installed import Schedule, Trace, ms

#: MetaSchedule's latency in seconds for a failed program.
FAILED_RUN_SECS = 1e10


@dataclass(frozen=True)
class DatabaseRecord:
    """A measured program that is not replayed yet.

    Attributes:
        line: Number of the line in ``database_tuning_record.json``, from 1.
        workload: Index into ``Database.workloads``.
        trace: The schedule's trace with its postprocessors, as JSON.
        run_secs: Latency of each repeat in seconds; empty if the program failed.
        target: The target, as JSON.
        args_info: Shapes and dtypes of the arguments, as JSON.
        failure: A :class:`~tvm_gnn_cost.datasets.records.Failure`; empty if the program ran.
        phase: How the program was sampled; empty if unknown.
    """

    line: int
    workload: int
    trace: str
    run_secs: tuple[float, ...]
    target: str
    args_info: str
    failure: str
    phase: str


@dataclass(frozen=True)
class Workload:
    """An unscheduled module and its task.

    Attributes:
        mod: The module.
        hash: Its structural hash.
        name: The task's name; the hash if the database has none.
        weights: Network -> number of occurrences of the task; empty if unknown.
    """

    mod: tvm.IRModule
    hash: str
    name: str
    weights: dict[str, int]


@dataclass(frozen=True)
class Database:
    """A MetaSchedule database.

    Attributes:
        folder: The folder.
        workloads: The workloads that records refer to by index; None for an unreadable workload.
        records: The readable records, in the order of the file.
        problems: The unreadable lines.
        card: Machine, target and settings of a collection; empty if the folder has no card.
    """

    folder: Path
    workloads: tuple[Workload | None, ...]
    records: tuple[DatabaseRecord, ...]
    problems: tuple[Problem, ...]
    card: dict[str, Any]

    def task(self, record: DatabaseRecord) -> TaskInfo:
        """The task of a record."""
        workload = self.workload(record)
        return TaskInfo(workload.hash, workload.name, record.target, workload.weights)

    def workload(self, record: DatabaseRecord) -> Workload:
        """The workload of a record."""
        workload = self.workloads[record.workload]
        assert workload is not None, "read_database keeps no record without a workload"
        return workload

    def replay(self, record: DatabaseRecord) -> ms.MeasureCandidate:
        """The schedule that was measured, postprocessors included, with its arguments.

        Raises:
            InputError: the trace does not apply to the workload, or the arguments are damaged.
        """
        schedule = Schedule(self.workload(record).mod)
        what = "the trace does not apply to its workload"
        # Each schedule primitive of TVM raises errors of its own types.
        try:
            Trace.apply_json_to_schedule(json.loads(record.trace), schedule)
            what = "args_info cannot be read"
            args_info = [ms.arg_info.ArgInfo.from_json(entry) for entry in json.loads(record.args_info)]
        except Exception as error:
            raise InputError(f"{what}: {last_line(error)}") from error
        return ms.MeasureCandidate(schedule, args_info)


def read_database(folder: Path) -> Database:
    """Reads a MetaSchedule database and the files of ``collect`` beside it, if they exist.

    Each file may be compressed, with the suffix ``.gz`` or ``.xz``. Unreadable lines are skipped and reported in
    ``problems``.

    Raises:
        FileNotFoundError: the folder has no MetaSchedule database.
    """
    problems: list[Problem] = []
    workload_file, record_file = (find_file(folder, name) for name in (WORKLOADS, RECORDS))
    if workload_file is None or record_file is None:
        missing = WORKLOADS if workload_file is None else RECORDS
        raise FileNotFoundError(
            f"{folder} is not a MetaSchedule database: it has no {missing} (or {missing}.gz or .xz)"
        )
    tasks = {str(entry.get("hash")): entry for _, entry in parsed_objects(find_file(folder, "tasks.jsonl"), problems)}
    measurements = dict(parsed_objects(find_file(folder, "measurements.jsonl"), problems))
    workloads = tuple(
        None if entry is None else _workload(entry, tasks, Problem(workload_file, line, ""), problems)
        for line, entry in parsed_lines(workload_file, problems)
    )
    records = []
    for line, entry in parsed_lines(record_file, problems):
        if entry is not None:
            try:
                records.append(_record(line, entry, workloads, measurements.get(line, {})))
            except InputError as error:
                problems.append(Problem(record_file, line, str(error)))
    card = _card(folder, problems)
    return Database(folder, workloads, tuple(records), tuple(problems), card)


def _workload(entry: Any, tasks: dict[str, dict[str, Any]], where: Problem, problems: list[Problem]) -> Workload | None:
    try:
        mod = ms.database.Workload.from_json(entry).mod
    # TVM's deserialiser raises errors of any type for a damaged text.
    except Exception as error:
        problems.append(Problem(where.file, where.line, f"TVM cannot read the workload ({last_line(error)})"))
        return None
    # Unlike this hash, the hash in the file depends on the database's module_equality.
    key: str = ms.utils.shash2hex(mod)
    task = tasks.get(key, {})
    weights = task.get("weights")
    if not isinstance(weights, dict) or not all(isinstance(count, int) for count in weights.values()):
        weights = {}
    return Workload(mod, key, str(task.get("name", key)), weights)


def _record(line: int, entry: Any, workloads: Sequence[Workload | None], measurement: dict[str, Any]) -> DatabaseRecord:
    """Checks one line of ``database_tuning_record.json``, given as parsed JSON.

    Raises:
        InputError: the line is unreadable; the message says why.
    """
    try:
        number, (trace, run_secs, target, args_info) = entry
        instructions, _decisions = trace
    except (TypeError, ValueError):
        raise InputError("not a tuning record: expected [workload, [trace, run_secs, target, args_info]]") from None
    if not isinstance(instructions, list) or not isinstance(number, int):
        raise InputError("not a tuning record: the workload must be a number and the trace a list")
    if not 0 <= number < len(workloads):
        raise InputError(f"workload {number} is unknown; {WORKLOADS} has {len(workloads)}")
    workload = workloads[number]
    if workload is None:
        raise InputError(f"workload {number} could not be read")
    if not run_secs or not isinstance(run_secs, list):
        raise InputError("run_secs is missing: the program was never measured")
    if not all(isinstance(seconds, int | float) and seconds > 0 for seconds in run_secs):
        raise InputError(f"run_secs {run_secs} has a value that is not a positive number")
    if args_info is None:
        raise InputError("args_info is missing")
    target_text = json.dumps(target, sort_keys=True)
    if not _is_target(target_text):
        raise InputError(f"target {target_text[:80]} is unknown to this TVM")
    # A line of another task: the two files are not of the same collection.
    if measurement.get("task", workload.hash) != workload.hash:
        raise InputError(
            f"measurements.jsonl:{line} is about task {measurement['task']}, the record is {workload.hash}"
        )
    failure = str(measurement.get("failure") or "")
    if max(run_secs) >= FAILED_RUN_SECS:
        failure, run_secs = failure or Failure.UNKNOWN, []
    return DatabaseRecord(
        line,
        number,
        json.dumps(trace),
        tuple(map(float, run_secs)),
        target_text,
        json.dumps(args_info),
        failure,
        str(measurement.get("phase") or ""),
    )


@cache
def _is_target(text: str) -> bool:
    target = json.loads(text)
    try:
        return isinstance(target, dict) and bool(tvm.target.Target(target))
    # The type of TVM's error depends on the attribute that it rejects.
    except Exception:
        return False


def _card(folder: Path, problems: list[Problem]) -> dict[str, Any]:
    file = find_file(folder, "card.json")
    if file is None:
        return {}
    try:
        with open_file(file) as opened:
            card = parse_json(opened.read())
    except (ValueError, *DAMAGED) as error:
        problems.append(Problem(file, 1, f"not JSON ({error})"))
        return {}
    return card if isinstance(card, dict) else {}
