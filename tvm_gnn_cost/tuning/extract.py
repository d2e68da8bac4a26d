"""Turns folders of measure records into graphs in a store."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from tvm_gnn_cost.datasets.programs import TaskInfo
from tvm_gnn_cost.datasets.records import Problem
from tvm_gnn_cost.datasets.store import GraphStore
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import check_folder
from tvm_gnn_cost.graphs.program_graph import Detail
from tvm_gnn_cost.progress import Advanced, Progress, ignore
from tvm_gnn_cost.schedulers import scheduler_of


@dataclass(frozen=True)
class ExtractResult:
    """Number of programs added, number of programs already in the store, and records that were skipped."""

    added: int
    known: int
    problems: tuple[Problem, ...]


def extract(
    folder: str | os.PathLike[str],
    store: str | os.PathLike[str],
    *,
    detail: Detail = "statements",
    features: bool = True,
    hardware: str | None = None,
    programs_at_once: int | None = None,
    jobs: int | None = None,
    dask: str = "",
    progress: Progress = ignore,
) -> ExtractResult:
    """Replays the records of a folder and appends their graphs to a store, a shard at a time.

    Records that are already in the store are not replayed again, so an interrupted extraction resumes; networks that
    were added to the folder's tasks since are added in the store. A record that cannot be replayed is skipped and
    reported.

    Args:
        folder: A MetaSchedule database, or a folder in TenSet's layout.
        store: Folder of the data set store.
        detail: ``tree`` for every node of the syntax trees, ``statements`` without nodes of index arithmetic, which is
            what the default model reads.
        features: Whether to extract TVM's features of TensorIR stores too, which its XGBoost model needs; 50% slower.
        hardware: In TenSet's layout, the folder in ``measure_records``; only needed if there are several.
        programs_at_once: Number of programs of a shard, which are in memory together.
        jobs: Number of threads, or of processes for TenSet's layout; one per core if None. With 1, a damaged record can
            crash this process.
        dask: Address of a Dask scheduler (``tcp://HOST:8786``) whose workers extract instead of this machine. They need
            this package with the same TVM and ``folder`` under the same path, and one thread each; the store is
            written by this process.
        progress: Receives an ``Advanced`` after every shard.

    Raises:
        FileNotFoundError: the folder holds no measure records.
        InputError: the store is of another version or detail, or the folder is damaged.
        WorkError: no Dask scheduler with a worker answers.
        WrongTVMError: the installed TVM cannot replay the records.

    >>> extract(records, work / "store").added
    6
    >>> extract(records, work / "store").known
    6
    """
    check_folder(Path(store))
    records = scheduler_of(Path(folder)).measured(Path(folder).resolve(), hardware, jobs, dask)
    target = GraphStore(Path(store))
    if target.detail() not in (None, detail):
        raise InputError(
            f"{store} holds graphs of detail '{target.detail()}', not '{detail}'; extract into another folder"
        )
    size = programs_at_once or records.programs_at_once
    stored, new = target.keys(), set[str]()
    stored_tasks: dict[tuple[str, ...], TaskInfo] = {}
    known = 0

    def new_records() -> Iterator[tuple[str, Any]]:
        nonlocal known
        for key, record in records.records():
            if key in stored and (task := records.task_info(record)) is not None:
                stored_tasks[task.identity] = task
            if key in stored or key in new:
                known += 1
                continue
            new.add(key)
            yield key, record

    def chunks() -> Iterator[list[tuple[str, Any]]]:
        waiting = new_records()
        while chunk := list(islice(waiting, size)):
            yield chunk

    problems = list(records.problems)
    added = done = 0
    for chunk in records.extract(chunks(), detail, features):
        problems.extend(chunk.problems)
        if chunk.programs is not None:
            target.append(chunk.programs, run_secs=chunk.run_secs, keys=chunk.keys)
            added += len(chunk.programs)
        done += len(chunk.keys) + len(chunk.problems)
        progress(Advanced(known + done, records.total))
    target.add_networks(stored_tasks.values())
    return ExtractResult(added, known, tuple(problems))
