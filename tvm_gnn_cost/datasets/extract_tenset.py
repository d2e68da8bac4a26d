"""Turns measure records of ``auto_scheduler`` into graphs in a store, on all cores; talks to TVM."""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import numpy.typing as npt
from joblib.externals.loky import ProcessPoolExecutor
from joblib.externals.loky.process_executor import TerminatedWorkerError

from tvm_gnn_cost.datasets.programs import PER_STORE_COLUMNS, MeasuredPrograms, RaggedFeatures, TaskInfo
from tvm_gnn_cost.datasets.records import Extraction, Problem, Progress, latency_and_noise
from tvm_gnn_cost.datasets.store import GraphStore
from tvm_gnn_cost.datasets.tenset import Record, RecordLine, TensetFolder, parse_record, parse_state, read_tenset
from tvm_gnn_cost.graphs.extract_legacy import extract_states
from tvm_gnn_cost.graphs.program_graph import Detail, ProgramGraphs

#: What one worker process is given at a time: lines with their keys in, programs and problems out.
_Chunk = list[tuple[str, RecordLine]]
_Done = tuple[MeasuredPrograms | None, list[str], list[tuple[float, ...]], list[Problem]]

#: A task in a folder: workload key, target as TVM wrote it, and ``TaskInfo.hardware``.
_Task = tuple[str, str, str]


def extract_tenset(
    folder: Path,
    store: GraphStore,
    *,
    hardware: str | None = None,
    detail: Detail = "tree",
    per_store_features: bool = True,
    programs_at_once: int = 256,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> Extraction:
    """Replays the records of a folder in TenSet's layout and appends their graphs to a store, a shard at a time.

    Records that are in the store already are not replayed again, so an interrupted extraction goes on where it was;
    networks that were found since reach their tasks. A record whose steps cannot be replayed is left out, also one
    that failed when it was measured. The files are read line by line: memory does not grow with their length.

    Args:
        folder: What :func:`read_tenset` takes.
        store: Where the programs go.
        hardware: The folder of ``measure_records`` to take; not needed where there is only one.
        detail: How much of the syntax tree is kept, see ``extract_graphs``.
        per_store_features: Also extract ``auto_scheduler``'s own features, which its XGBoost model needs.
        programs_at_once: Programs of one shard, replayed by one process.
        jobs: Processes; one a core, and two at least, if None. With 1 everything happens in this process, and a record
            whose steps make TVM crash ends it.
        progress: Told after every shard.

    Raises:
        FileNotFoundError: the folder has not TenSet's layout.
        ValueError: a pickle is refused, or the store was written by another version or with another detail.
    """
    opened = _Opened(folder, hardware, uuid.uuid4().hex)
    source = _folder(opened)
    if store.detail() not in (None, detail):
        raise ValueError(
            f"{store.folder} holds graphs of detail '{store.detail()}', not '{detail}'; extract into another folder"
        )
    problems: list[Problem] = []
    added = done = known = 0
    stored, new = store.keys(), set[str]()
    stored_tasks: set[_Task] = set()
    total = source.count

    def new_lines() -> Iterator[tuple[str, RecordLine]]:
        nonlocal known
        for line in source.lines():
            key = _key(line)
            if key in stored:
                stored_tasks.add(_task_of(parse_record(line)))
            if key in stored or key in new:
                known += 1
                continue
            new.add(key)
            yield key, line

    def chunks() -> Iterator[_Chunk]:
        waiting = new_lines()
        while chunk := list(islice(waiting, programs_at_once)):
            yield chunk

    def take(result: _Done) -> None:
        nonlocal added, done
        programs, keys, run_secs, found = result
        problems.extend(found)
        if programs is not None:
            store.append(programs, run_secs=run_secs, keys=keys)
            added += len(programs)
        done += len(keys) + len(found)
        if progress is not None:
            progress.extracted(known + done, total)

    run = partial(_extract_chunk, opened, detail, per_store_features)
    for result in _in_processes(run, chunks(), jobs or max(2, joblib.cpu_count())):
        take(result)
    store.add_networks(_task_info(source, task) for task in sorted(stored_tasks) if task[0] in source.weights)
    return Extraction(added, known, tuple(problems))


def _in_processes(run: Callable[[_Chunk], _Done], chunks: Iterator[_Chunk], jobs: int) -> Iterator[_Done]:
    """The results of all chunks, in order; a record that crashes TVM, which trusts its steps, is found and left out."""
    in_flight: deque[_Chunk] = deque()

    def issue() -> Iterator[Any]:
        for chunk in chunks:
            in_flight.append(chunk)
            yield joblib.delayed(run)(chunk)

    while True:
        # Two chunks a process wait at most: what was read and not yet extracted stays small.
        parallel = joblib.Parallel(n_jobs=jobs, return_as="generator", pre_dispatch="2*n_jobs", batch_size=1)
        try:
            for result in parallel(issue()):
                in_flight.popleft()
                yield result
            return
        except TerminatedWorkerError:
            while in_flight:
                yield from _apart(run, in_flight.popleft())


def _apart(run: Callable[[_Chunk], _Done], chunk: _Chunk) -> Iterator[_Done]:
    """A chunk in a process of its own; in halves, if that crashes."""
    with ProcessPoolExecutor(max_workers=1) as process:
        try:
            yield process.submit(run, chunk).result()
            return
        except TerminatedWorkerError:
            pass
    if len(chunk) == 1:
        (_key_of_it, line), *_ = chunk
        yield None, [], [], [Problem(line.file, line.line, "TVM crashes on its steps; they are not of its task")]
        return
    for half in (chunk[: len(chunk) // 2], chunk[len(chunk) // 2 :]):
        yield from _apart(run, half)


@dataclass(frozen=True)
class _Opened:
    """A folder as one extraction found it: the next one, by its other name, reads it again."""

    folder: Path
    hardware: str | None
    extraction: str


@lru_cache(maxsize=2)
def _folder(opened: _Opened) -> TensetFolder:
    """The tasks, read once a process."""
    return read_tenset(opened.folder, opened.hardware)


def _task_of(record: Record) -> _Task:
    """What task of what machine a record is of."""
    folder = record.source.file.parent.name
    named = re.search(r"-model=(\S+)", record.target)
    return record.workload_key, record.target, "" if named and named[1] == folder else folder


def _task_info(source: TensetFolder, task: _Task) -> TaskInfo:
    workload_key, target, hardware = task
    search_task, weights = source.tasks[workload_key], source.weights.get(workload_key, {})
    name = _name(search_task)
    return TaskInfo(structural_hash(search_task), name, json.dumps(target), weights, "auto-scheduler", hardware)


def _extract_chunk(opened: _Opened, detail: Detail, per_store_features: bool, chunk: _Chunk) -> _Done:
    """Reads, replays and extracts the lines of one shard."""
    source = _folder(opened)
    read: list[tuple[str, Record, Any]] = []
    problems: list[Problem] = []
    for key, line in chunk:
        try:
            record = parse_record(line)
            if record.workload_key not in source.tasks:
                raise ValueError(f"its task {record.workload_key[:80]} is in no pickle of network_info")
            read.append((key, record, parse_state(line)))
        except ValueError as error:
            problems.append(Problem(line.file, line.line, str(error)))
    kept: list[tuple[str, Record]] = []
    parts: list[ProgramGraphs] = []
    features: list[npt.NDArray[np.float32]] = []
    # Records of a task stand together, so that each is lowered in one call.
    for workload_key in sorted({record.workload_key for _, record, _ in read}):
        own = [item for item in read if item[1].workload_key == workload_key]
        search_task = source.tasks[workload_key]
        states = [state for _, _, state in own]
        graphs = extract_states(search_task.compute_dag, states, detail=detail, threads=1, on_error="skip")
        for i, reason in graphs.errors.items():
            bad = own[i][1].source
            problems.append(Problem(bad.file, bad.line, f"its steps cannot be replayed ({reason[:120]})"))
        good = [i for i in range(len(own)) if i not in graphs.errors]
        parts.append(graphs.select(good))
        kept += [own[i][:2] for i in good]
        if per_store_features and good:
            features += features_of_states(search_task, [states[i] for i in good])
    problems.sort(key=lambda problem: (problem.file, problem.line))
    if not kept:
        return None, [], [], problems
    records = [record for _, record in kept]
    numbers: dict[_Task, int] = {}
    task = [numbers.setdefault(_task_of(record), len(numbers)) for record in records]
    run_secs = [record.run_secs for record in records]
    programs = MeasuredPrograms(
        ProgramGraphs.concatenate(parts),
        tuple(_task_info(source, one) for one in numbers),
        np.array(task, np.int32),
        *latency_and_noise(run_secs),
        tuple(record.failure for record in records),
        ("",) * len(records),
        RaggedFeatures.of(features) if per_store_features else None,
    )
    return programs, [key for key, _ in kept], run_secs, problems


@lru_cache(maxsize=4096)
def structural_hash(task: Any) -> str:
    """Names a ``SearchTask`` by its unscheduled program: neither the names in it count nor what TenSet calls it."""
    import tvm
    from tvm.driver.build_module import schedule_to_module

    dag = task.compute_dag
    mod = schedule_to_module(*dag.apply_steps_from_state(dag.get_init_state()))
    return f"{tvm.ir.structural_hash(mod) & 0xFFFFFFFFFFFFFFFF:016x}"


def _name(task: Any) -> str:
    """What the task computes: its last operator."""
    return str(task.desc or task.compute_dag.ops[-1].name)


def features_of_states(task: Any, states: Sequence[Any]) -> list[npt.NDArray[np.float32]]:
    """``auto_scheduler``'s features, float32[stores, 164] a state; no row for a state that it cannot lower."""
    from tvm.auto_scheduler.feature import get_per_store_features_from_states

    try:
        found = get_per_store_features_from_states(list(states), task)
    except Exception:  # One state whose steps do not apply fails the whole call; TVM has no narrower error for it.
        if len(states) == 1:
            return [np.zeros((0, PER_STORE_COLUMNS), np.float32)]
        middle = len(states) // 2
        return features_of_states(task, states[:middle]) + features_of_states(task, states[middle:])
    # A state that cannot be lowered is a single zero row there.
    return [
        np.zeros((0, PER_STORE_COLUMNS), np.float32)
        if rows.size == 0 or rows.min() == rows.max() == 0
        else rows.astype(np.float32)
        for rows in found
    ]


def _key(line: RecordLine) -> str:
    """Names a measurement: the same line in two folders has the same key."""
    return hashlib.blake2b(line.text.encode(), digest_size=16).hexdigest()
