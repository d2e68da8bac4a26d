"""Extracts a folder in TenSet's layout: replays its records and extracts graphs and features, on all cores."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import numpy.typing as npt
import tvm
from tvm import auto_scheduler
from tvm.auto_scheduler.feature import get_per_store_features_from_states
from tvm.driver.build_module import schedule_to_module

from tvm_gnn_cost.datasets.programs import PER_STORE_COLUMNS, Measurement, TaskInfo, measured_programs
from tvm_gnn_cost.datasets.records import Problem, last_line
from tvm_gnn_cost.datasets.tenset import RecordLine, TensetRecord, parse_record
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.extraction import extract_graphs, extract_states
from tvm_gnn_cost.graphs.processor import with_processors
from tvm_gnn_cost.graphs.program_graph import Detail, ProgramGraphs
from tvm_gnn_cost.schedulers.auto_scheduler.records import TensetFolder, parse_state, read_tenset
from tvm_gnn_cost.schedulers.isolation import each_or_empty, in_processes
from tvm_gnn_cost.schedulers.listing import list_program
from tvm_gnn_cost.schedulers.scheduler import Chunk, Listing

#: Why a record that crashes its process is skipped.
_CRASHES = "TVM crashes on its steps; they are not of its task"

#: Identifies a task of a folder: workload key, target as TVM wrote it, and ``TaskInfo.hardware``.
_Task = tuple[str, str, str]


@dataclass(frozen=True)
class _Opened:
    """A folder as one extraction read it; ``extraction`` is unique, so that the next one reads the folder again."""

    folder: Path
    hardware: str | None
    extraction: str


class RecordFolder:
    """A :class:`~tvm_gnn_cost.schedulers.scheduler.MeasuredFolder` that reads its files line by line.

    Args:
        folder: A folder that :func:`read_tenset` can read.
        hardware: The machine's folder in ``measure_records``; only needed if there are several.
        jobs: Number of processes; one per core but at least two if None. With 1 the work is done in this process, which
            a damaged record can crash.
        cluster: Address of a Dask scheduler whose workers extract instead; they need the folder under the same path.

    Raises:
        FileNotFoundError: a part of the layout is missing.
        InputError: a pickle is rejected or damaged, or ``hardware`` must be chosen.
    """

    programs_at_once = 256
    #: Unreadable lines are only found when their chunk is extracted.
    problems: Sequence[Problem] = ()

    def __init__(self, folder: Path, hardware: str | None, jobs: int | None, cluster: str = "") -> None:
        self._opened = _Opened(folder, hardware, uuid.uuid4().hex)
        self.source = _read(self._opened)
        self.jobs, self.cluster = jobs or max(2, joblib.cpu_count()), cluster

    @property
    def total(self) -> int:
        """Number of lines, including unreadable lines."""
        return self.source.count

    @property
    def networks(self) -> set[str]:
        """Names of the networks with a pickle."""
        return self.source.networks

    def records(self) -> Iterator[tuple[str, RecordLine]]:
        """Each line with its key, the hash of its text."""
        for line in self.source.lines():
            yield hashlib.blake2b(line.text.encode(), digest_size=16).hexdigest(), line

    def task_info(self, record: RecordLine) -> TaskInfo | None:
        """The task of a record; None if it is in no pickle."""
        task = _task_of(parse_record(record))
        return _task_info(self._opened, task) if task[0] in self.source.tasks else None

    def seconds(self, record: RecordLine) -> float:
        """The fastest repeat of a record; infinite if the program failed."""
        return min(parse_record(record).run_secs, default=float("inf"))

    def listing(self, record: RecordLine) -> Listing:
        """The text and the graph of a record's program, which is replayed in another process.

        Raises:
            InputError: the record's steps cannot be replayed.
        """
        (listing,) = in_processes(partial(_listing, self._opened), [[record]], 1 if self.jobs == 1 else 2, _cannot)
        if isinstance(listing, str):
            raise InputError(f"{record.file}:{record.line}: {listing}")
        return listing

    def extract(
        self, chunks: Iterable[Sequence[tuple[str, RecordLine]]], detail: Detail, with_features: bool
    ) -> Iterator[Chunk]:
        """Replays and extracts the chunks in worker processes; a record that crashes TVM becomes a problem."""
        run = partial(_extract, self._opened, detail, with_features)
        yield from in_processes(run, chunks, self.jobs, _crashed, self.cluster)


@lru_cache(maxsize=2)
def _read(opened: _Opened) -> TensetFolder:
    """The tasks of a folder, read once in each process."""
    return read_tenset(opened.folder, opened.hardware)


def _crashed(item: tuple[str, RecordLine]) -> Chunk:
    line = item[1]
    return Chunk(None, problems=[Problem(line.file, line.line, _CRASHES)])


def _cannot(_: RecordLine) -> Listing | str:
    return _CRASHES


def _listing(opened: _Opened, lines: Sequence[RecordLine]) -> Listing | str:
    """The listing of a line's program, or why it cannot be replayed."""
    (line,) = lines
    record = parse_record(line)
    dag = _read(opened).tasks[record.workload_key].compute_dag
    # TVM's errors have any type.
    try:
        mod = schedule_to_module(*dag.apply_steps_from_state(parse_state(line)))
        graphs = extract_graphs([mod], record.target, detail="statements", threads=1)
    except Exception as error:
        return f"its steps cannot be replayed ({last_line(error)})"
    return list_program(mod, graphs)


def _task_of(record: TensetRecord) -> _Task:
    """Identifies the task of a record, with the machine unless the target already names it."""
    folder = record.source.file.parent.name
    named = re.search(r"-model=(\S+)", record.target)
    return record.workload_key, record.target, "" if named and named[1] == folder else folder


@lru_cache(maxsize=4096)
def _task_info(opened: _Opened, task: _Task) -> TaskInfo:
    source, (workload_key, target, hardware) = _read(opened), task
    search_task, weights = source.tasks[workload_key], source.weights.get(workload_key, {})
    name = str(search_task.desc or search_task.compute_dag.ops[-1].name)
    return TaskInfo(structural_hash(search_task), name, json.dumps(target), weights, "auto-scheduler", hardware)


@lru_cache(maxsize=4096)
def structural_hash(task: Any) -> str:
    """The hash of a ``SearchTask``'s unscheduled program, which depends neither on names nor on the workload key."""
    dag = task.compute_dag
    mod = schedule_to_module(*dag.apply_steps_from_state(dag.get_init_state()))
    return f"{tvm.ir.structural_hash(mod) & 0xFFFFFFFFFFFFFFFF:016x}"


def _extract(opened: _Opened, detail: Detail, with_features: bool, chunk: Sequence[tuple[str, RecordLine]]) -> Chunk:
    """Parses, replays and extracts the lines of one chunk."""
    source = _read(opened)
    read: list[tuple[str, TensetRecord, Any]] = []
    problems: list[Problem] = []
    for key, line in chunk:
        try:
            record = parse_record(line)
            if record.workload_key not in source.tasks:
                raise InputError(f"its task {record.workload_key[:80]} is in no pickle of network_info")
            read.append((key, record, parse_state(line)))
        except InputError as error:
            problems.append(Problem(line.file, line.line, str(error)))
    kept: list[tuple[str, TensetRecord]] = []
    parts: list[ProgramGraphs] = []
    features: list[npt.NDArray[np.float32]] = []
    # Grouped by task, because one call extracts states of one task.
    for workload_key in sorted({record.workload_key for _, record, _ in read}):
        of_task = [item for item in read if item[1].workload_key == workload_key]
        search_task = source.tasks[workload_key]
        states = [state for _, _, state in of_task]
        graphs = extract_states(search_task.compute_dag, states, detail=detail, threads=1, on_error="skip")
        for i, reason in graphs.errors.items():
            bad = of_task[i][1].source
            problems.append(Problem(bad.file, bad.line, f"its steps cannot be replayed ({reason[:120]})"))
        good = [i for i in range(len(of_task)) if i not in graphs.errors]
        parts.append(with_processors(graphs.select(good), [of_task[i][1].target for i in good]))
        kept += [of_task[i][:2] for i in good]
        if with_features:
            features += per_store_features(search_task, [states[i] for i in good])
    problems.sort(key=lambda problem: (problem.file, problem.line))
    if not kept:
        return Chunk(None, problems=problems)
    measurements = [
        Measurement(_task_info(opened, _task_of(record)), record.run_secs, record.failure, "") for _, record in kept
    ]
    programs = measured_programs(ProgramGraphs.concatenate(parts), measurements, features if with_features else None)
    return Chunk(programs, [key for key, _ in kept], [record.run_secs for _, record in kept], problems)


_NONE = np.zeros((0, PER_STORE_COLUMNS), np.float32)


def per_store_features(task: auto_scheduler.SearchTask, states: Sequence[Any]) -> list[npt.NDArray[np.float32]]:
    """The features of the TensorIR stores of a task's states.

    Returns:
        float32[stores, 164] for each state; float32[0, 164] for a state that TVM cannot lower.
    """

    def extract(part: Sequence[Any]) -> list[npt.NDArray[np.float32]]:
        return [_rows(rows) for rows in get_per_store_features_from_states(list(part), task)]

    return each_or_empty(extract, states, _NONE)


def _rows(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    # TVM returns a row of zeros for a state that it cannot lower.
    return _NONE if rows.size == 0 or rows.min() == rows.max() == 0 else rows.astype(np.float32)
