"""Reads MetaSchedule databases and replays their records; talks to TVM."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import tvm
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.schedule import Trace

from tvm_gnn_cost.datasets.programs import TaskInfo
from tvm_gnn_cost.datasets.records import Problem, last_line

#: A run of this many seconds or more is MetaSchedule's mark of a program that failed.
FAILED_RUN_SECS = 1e10


@dataclass(frozen=True)
class Record:
    """One measured program, not yet replayed.

    Attributes:
        line: Its line in ``database_tuning_record.json``, from 1.
        workload: Number in ``Collection.workloads``.
        trace: The schedule's trace with its postprocessors, JSON text.
        run_secs: Seconds, a number a repeat; none where the program failed.
        target: The target, JSON text.
        args_info: Shapes and types of the arguments, JSON text.
        failure: Kind of failure; empty where there is none.
        phase: How the program was sampled; empty where that is not known.
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
    """An unscheduled module and what is known of its task."""

    mod: tvm.IRModule
    hash: str
    name: str
    weights: dict[str, int]


@dataclass(frozen=True)
class Collection:
    """A MetaSchedule database.

    Attributes:
        folder: Where it was read.
        workloads: The workloads that records refer to by number; None for one that could not be read.
        records: The records that can be used, in the order of the file.
        problems: What could not be used.
        card: Machine, target and settings of a collection; empty where the database has none.
    """

    folder: Path
    workloads: tuple[Workload | None, ...]
    records: tuple[Record, ...]
    problems: tuple[Problem, ...]
    card: dict[str, Any]

    def task(self, record: Record) -> TaskInfo:
        """The task of a record."""
        workload = self.workload(record)
        return TaskInfo(workload.hash, workload.name, record.target, workload.weights)

    def workload(self, record: Record) -> Workload:
        """The workload of a record."""
        workload = self.workloads[record.workload]
        assert workload is not None, "read_collection keeps no record without a workload"
        return workload

    def replay(self, record: Record) -> ms.MeasureCandidate:
        """The schedule that was measured, postprocessors included, and its arguments.

        Raises:
            ValueError: the trace cannot be applied to the workload, or the arguments are damaged.
        """
        schedule = Schedule(self.workload(record).mod)
        what = "the trace does not apply to its workload"
        # TVM raises whatever the failing primitive does: ScheduleError, ValueError, TypeError, InternalError, ...
        try:
            Trace.apply_json_to_schedule(json.loads(record.trace), schedule)
            what = "args_info cannot be read"
            args_info = [ms.arg_info.ArgInfo.from_json(entry) for entry in json.loads(record.args_info)]
        except Exception as error:
            raise ValueError(f"{what}: {last_line(error)}") from error
        return ms.MeasureCandidate(schedule, args_info)


def read_collection(folder: Path) -> Collection:
    """Reads a MetaSchedule database, with or without the files that ``collect`` writes beside it.

    Each file may be there as itself or with ``.gz`` behind its name. A line that cannot be used is left out and
    reported in ``problems``.

    Raises:
        FileNotFoundError: the folder holds no MetaSchedule database.
    """
    problems: list[Problem] = []
    workload_file, record_file = (_find(folder, f"database_{part}.json") for part in ("workload", "tuning_record"))
    if workload_file is None or record_file is None:
        missing = "database_workload.json" if workload_file is None else "database_tuning_record.json"
        raise FileNotFoundError(f"{folder} is no MetaSchedule database: it has no {missing} (or {missing}.gz)")
    tasks = {str(entry.get("hash")): entry for _, entry in _objects(_find(folder, "tasks.jsonl"), problems)}
    measurements = dict(_objects(_find(folder, "measurements.jsonl"), problems))
    workloads = tuple(
        None if entry is None else _workload(entry, tasks, Problem(workload_file, line, ""), problems)
        for line, entry in _parsed(workload_file, problems)
    )
    records = []
    for line, entry in _parsed(record_file, problems):
        if entry is not None:
            try:
                records.append(_record(line, entry, workloads, measurements.get(line, {})))
            except ValueError as error:
                problems.append(Problem(record_file, line, str(error)))
    card = _card(folder, problems)
    return Collection(folder, workloads, tuple(records), tuple(problems), card)


def _workload(entry: Any, tasks: dict[str, dict[str, Any]], where: Problem, problems: list[Problem]) -> Workload | None:
    try:
        mod = ms.database.Workload.from_json(entry).mod
    # A damaged text fails deep in TVM's deserialiser, with an error of any type.
    except Exception as error:
        problems.append(Problem(where.file, where.line, f"TVM cannot read the workload ({last_line(error)})"))
        return None
    # Not the hash in the file: that depends on the database's module_equality.
    key: str = ms.utils.shash2hex(mod)
    task = tasks.get(key, {})
    weights = task.get("weights")
    if not isinstance(weights, dict) or not all(isinstance(count, int) for count in weights.values()):
        weights = {}
    return Workload(mod, key, str(task.get("name", key)), weights)


def _record(line: int, entry: Any, workloads: Sequence[Workload | None], measurement: dict[str, Any]) -> Record:
    """Checks one line of ``database_tuning_record.json``.

    Raises:
        ValueError: it cannot be used; the message says why.
    """
    try:
        number, (trace, run_secs, target, args_info) = entry
        instructions, _decisions = trace
    except (TypeError, ValueError):
        raise ValueError("not a tuning record: expected [workload, [trace, run_secs, target, args_info]]") from None
    if not isinstance(instructions, list) or not isinstance(number, int):
        raise ValueError("not a tuning record: the workload must be a number and the trace a list")
    if not 0 <= number < len(workloads):
        raise ValueError(f"workload {number} is unknown; database_workload.json has {len(workloads)}")
    workload = workloads[number]
    if workload is None:
        raise ValueError(f"workload {number} could not be read")
    if not run_secs or not isinstance(run_secs, list):
        raise ValueError("run_secs is missing: the program was never measured")
    if not all(isinstance(seconds, int | float) and seconds > 0 for seconds in run_secs):
        raise ValueError(f"run_secs {run_secs} has a value that is not a positive number")
    if args_info is None:
        raise ValueError("args_info is missing")
    target_text = json.dumps(target, sort_keys=True)
    if not _is_target(target_text):
        raise ValueError(f"target {target_text[:80]} is none that this TVM knows")
    # A measurement of another task means that the two files do not belong together line by line.
    if measurement.get("task", workload.hash) != workload.hash:
        raise ValueError(
            f"measurements.jsonl:{line} is about task {measurement['task']}, the record is {workload.hash}"
        )
    failure = str(measurement.get("failure") or "")
    if max(run_secs) >= FAILED_RUN_SECS:
        failure, run_secs = failure or "unknown", []
    return Record(
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
    except Exception:  # What TVM raises depends on the attribute it does not like.
        return False


def _objects(file: Path | None, problems: list[Problem]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The JSON objects of an optional file, with their line numbers."""
    for line, entry in _parsed(file, problems) if file else ():
        if isinstance(entry, dict):
            yield line, entry
        elif entry is not None and file:
            problems.append(Problem(file, line, "expected a JSON object"))


def _parsed(file: Path, problems: list[Problem]) -> Iterator[tuple[int, Any]]:
    """Each line's number, from 1, and what it parses to; None for a broken one, which is in ``problems`` then."""
    with gzip.open(file, "rb") if file.suffix == ".gz" else file.open("rb") as lines:
        try:
            for number, text in enumerate(lines, 1):
                try:
                    entry = json.loads(text)
                    reason = "holds nothing (null)"
                except (ValueError, RecursionError) as error:
                    entry, reason = None, f"not JSON ({error})"
                if entry is None:
                    problems.append(Problem(file, number, reason))
                yield number, entry
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            problems.append(Problem(file, 0, f"the compressed file is cut off or damaged ({error})"))


def _card(folder: Path, problems: list[Problem]) -> dict[str, Any]:
    file = _find(folder, "card.json")
    if file is None:
        return {}
    try:
        card = json.loads(gzip.decompress(file.read_bytes()) if file.suffix == ".gz" else file.read_bytes())
    except (ValueError, EOFError, gzip.BadGzipFile, zlib.error) as error:
        problems.append(Problem(file, 1, f"not JSON ({error})"))
        return {}
    return card if isinstance(card, dict) else {}


def _find(folder: Path, name: str) -> Path | None:
    return next((path for path in (folder / name, folder / f"{name}.gz") if path.is_file()), None)
