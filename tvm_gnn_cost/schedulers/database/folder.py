"""Extracts a MetaSchedule database: replays its records and extracts graphs and features."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm

from tvm_gnn_cost.datasets.programs import PER_STORE_COLUMNS, Measurement, TaskInfo, measured_programs
from tvm_gnn_cost.datasets.records import RECORDS, Problem
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.extraction import extract_graphs
from tvm_gnn_cost.graphs.processor import with_processors
from tvm_gnn_cost.graphs.program_graph import Detail
from tvm_gnn_cost.installed import ms
from tvm_gnn_cost.schedulers.database.records import DatabaseRecord, read_database
from tvm_gnn_cost.schedulers.isolation import each_or_empty, in_processes
from tvm_gnn_cost.schedulers.listing import list_program
from tvm_gnn_cost.schedulers.scheduler import Chunk, Listing


class DatabaseFolder:
    """A :class:`~tvm_gnn_cost.schedulers.scheduler.MeasuredFolder`.

    Args:
        folder: A folder that :func:`read_database` can read.
        threads: Number of threads of the graph extraction; one per core if None.
        import_intrinsics: Imports TVM's tensor intrinsics, which traces may use.
        cluster: Address of a Dask scheduler whose workers extract instead; they need the folder under the same path.

    Raises:
        FileNotFoundError: the folder has no MetaSchedule database.
    """

    programs_at_once = 512

    def __init__(
        self,
        folder: Path,
        threads: int | None,
        import_intrinsics: Callable[[], object],
        cluster: str = "",
    ) -> None:
        self.database = read_database(folder)
        self.threads, self.cluster = threads or 0, cluster
        self.import_intrinsics = import_intrinsics

    @property
    def total(self) -> int:
        """Number of readable records."""
        return len(self.database.records)

    @property
    def networks(self) -> set[str]:
        """Names of the networks whose tasks have records."""
        return {network for record in self.database.records for network in self.task_info(record).weights}

    @property
    def problems(self) -> Sequence[Problem]:
        """The unreadable lines."""
        return self.database.problems

    def records(self) -> Iterator[tuple[str, DatabaseRecord]]:
        """Each record with its key, the hash of its contents."""
        for record in self.database.records:
            workload = self.database.workload(record).hash
            parts = (workload, record.target, record.trace, repr(record.run_secs), record.failure)
            yield hashlib.blake2b("\0".join(parts).encode(), digest_size=16).hexdigest(), record

    def task_info(self, record: DatabaseRecord) -> TaskInfo:
        """The task of a record."""
        return self.database.task(record)

    def seconds(self, record: DatabaseRecord) -> float:
        """The fastest repeat of a record; infinite if the program failed."""
        return min(record.run_secs, default=float("inf"))

    def listing(self, record: DatabaseRecord) -> Listing:
        """The text and the graph of a record's program.

        Raises:
            InputError: the trace does not apply to the workload.
        """
        self.import_intrinsics()
        mod = self.database.replay(record).sch.mod
        graphs = extract_graphs([mod], detail="statements", threads=1)
        return list_program(mod, with_processors(graphs, [record.target]))

    def extract(
        self, chunks: Iterable[Sequence[tuple[str, DatabaseRecord]]], detail: Detail, with_features: bool
    ) -> Iterator[Chunk]:
        """Replays and extracts each chunk, with threads of this process or on a cluster."""
        if self.cluster:
            here = _Opened(self.database.folder, uuid.uuid4().hex, self.import_intrinsics)
            run = partial(_extract_there, here, detail, with_features)
            crashed = partial(_crashed, self.database.folder)
            yield from in_processes(run, chunks, 1, crashed, self.cluster)
            return
        self.import_intrinsics()
        for chunk in chunks:
            yield self._extract(chunk, detail, with_features)

    def _extract(self, chunk: Sequence[tuple[str, DatabaseRecord]], detail: Detail, with_features: bool) -> Chunk:
        kept: list[tuple[str, DatabaseRecord, Any]] = []
        problems: list[Problem] = []
        for key, record in chunk:
            try:
                kept.append((key, record, self.database.replay(record)))
            except InputError as error:
                problems.append(Problem(self.database.folder / RECORDS, record.line, str(error)))
        if not kept:
            return Chunk(None, problems=problems)
        records = [record for _, record, _ in kept]
        candidates = [candidate for _, _, candidate in kept]
        mods = [candidate.sch.mod for candidate in candidates]
        graphs = extract_graphs(mods, detail=detail, threads=self.threads, on_error="skip")
        graphs = with_processors(graphs, [record.target for record in records])
        measurements = [
            Measurement(self.task_info(record), record.run_secs, record.failure, record.phase) for record in records
        ]
        features = self._features(records, candidates) if with_features else None
        programs = measured_programs(graphs, measurements, features)
        return Chunk(programs, [key for key, _, _ in kept], [record.run_secs for record in records], problems)

    def _features(self, records: Sequence[DatabaseRecord], candidates: Sequence[Any]) -> list[npt.NDArray[np.float32]]:
        """TVM's features of candidates, extracted one task and target at a time."""
        members: dict[tuple[int, str], list[int]] = {}
        for i, record in enumerate(records):
            members.setdefault((record.workload, record.target), []).append(i)
        out: dict[int, npt.NDArray[np.float32]] = {}
        for (_, target), rows in members.items():
            workload = self.database.workload(records[rows[0]]).mod
            target_of_task = tvm.target.Target(json.loads(target))
            matrices = per_store_features(workload, target_of_task, [candidates[i] for i in rows])
            out.update(zip(rows, matrices, strict=True))
        return [out[i] for i in range(len(records))]


@dataclass(frozen=True)
class _Opened:
    """A folder for the workers of a cluster; ``extraction`` is unique, so that the next one reads the folder again."""

    folder: Path
    extraction: str
    import_intrinsics: Callable[[], object] = field(compare=False)


@lru_cache(maxsize=2)
def _read(opened: _Opened) -> DatabaseFolder:
    """The folder, read once in each worker."""
    opened.import_intrinsics()
    return DatabaseFolder(opened.folder, 1, opened.import_intrinsics)


def _extract_there(
    opened: _Opened, detail: Detail, with_features: bool, chunk: Sequence[tuple[str, DatabaseRecord]]
) -> Chunk:
    return _read(opened)._extract(chunk, detail, with_features)


def _crashed(folder: Path, item: tuple[str, DatabaseRecord]) -> Chunk:
    return Chunk(None, problems=[Problem(folder / RECORDS, item[1].line, "TVM crashes on its trace")])


def check_no_hardware(folder: Path, hardware: str | None) -> None:
    """Rejects ``hardware`` for a database, which has records of a single machine.

    Raises:
        InputError: ``hardware`` is not None.
    """
    if hardware is not None:
        raise InputError(
            f"hardware is for a folder in TenSet's layout, but {folder} is not such a folder; leave it out"
        )


_NONE = np.zeros((0, PER_STORE_COLUMNS), np.float32)


def per_store_features(
    workload: tvm.IRModule, target: tvm.target.Target, candidates: Sequence[ms.MeasureCandidate]
) -> list[npt.NDArray[np.float32]]:
    """The features of the TensorIR stores of a task's candidates.

    Args:
        workload: The unscheduled module.
        target: The target of the programs.
        candidates: The candidates.

    Returns:
        float32[stores, 164] for each candidate; float32[0, 164] for a candidate that TVM cannot lower.
    """
    extractor = ms.feature_extractor.PerStoreFeature()
    context = ms.TuneContext(workload, target=target)

    def extract(part: Sequence[ms.MeasureCandidate]) -> list[npt.NDArray[np.float32]]:
        return [rows.numpy().astype(np.float32) for rows in extractor.extract_from(context, list(part))]

    return each_or_empty(extract, candidates, _NONE)
