"""The graph store: measured programs in a folder of Parquet shards.

One row a program; its arrays are binary columns, little-endian, row by row. What belongs to a shard as a whole is
JSON in its schema's metadata under ``graph_store``: the format's version, the names of the node values, the node types
and the tasks that the rows' numbers refer to. So each shard can be read by itself, and a store is their union.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tvm_gnn_cost.datasets.programs import MeasuredPrograms, RaggedFeatures, TaskInfo
from tvm_gnn_cost.graphs.program_graph import Detail, ProgramGraphs
from tvm_gnn_cost.graphs.values import VALUES

VERSION = 2
_META = b"graph_store"
_VALUE_NAMES = [name for name, _ in VALUES]
_COLUMNS = [
    *("task", "latency", "noise", "failure", "phase"),
    *("graph_error", "node_type", "values", "edges", "relation"),
]

# Level 9 writes half a millisecond a program, and the shards are a quarter smaller and read no slower than at level 1.
_FORMAT: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 9,
    "use_dictionary": ["failure", "phase"],
    "row_group_size": 64,
    "write_page_checksum": True,
}


@dataclass(frozen=True)
class _ShardInfo:
    """The metadata of a shard."""

    type_names: tuple[str, ...]
    tasks: tuple[TaskInfo, ...]
    feature_columns: int
    detail: Detail


class GraphStore:
    """Measured programs on disk.

    Appending is atomic: a shard is there whole or not at all, and who reads meanwhile sees the shards that were there.
    Every method that reads raises ValueError where a shard is damaged or was written by another version.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        """Number of programs."""
        return sum(_open(path)[0].metadata.num_rows for path in self.shards())

    def shards(self) -> list[Path]:
        """The shards' files in the order they were written."""
        return sorted(self.folder.glob("shard-*.parquet"))

    def keys(self) -> set[str]:
        """The keys that programs were appended with."""
        found: set[str] = set()
        for path in self.shards():
            with _named(path):
                found.update(_open(path)[0].read(["key"]).column("key").to_pylist())
        return found - {""}

    def detail(self) -> Detail | None:
        """The detail of the graphs; None in an empty store."""
        shards = self.shards()
        return _open(shards[0])[1].detail if shards else None

    def tasks(self) -> tuple[TaskInfo, ...]:
        """Every task of the store, with the networks that any shard knows it to occur in."""
        merged: dict[tuple[str, ...], TaskInfo] = {}
        for path in self.shards():
            for task in _open(path)[1].tasks:
                known = merged.get(_identity(task))
                weights = {**known.weights, **task.weights} if known else task.weights
                merged[_identity(task)] = replace(task, weights=weights)
        return tuple(merged.values())

    def append(
        self,
        programs: MeasuredPrograms,
        *,
        run_secs: Sequence[Sequence[float]] | None = None,
        keys: Sequence[str] | None = None,
    ) -> Path:
        """Writes one shard and returns its file.

        Args:
            programs: What to write. All of its tasks are, also one without a program: that is how the store learns
                of further networks of a task.
            run_secs: Seconds of every repeat of every program, kept for other tools.
            keys: A name for each program, for :meth:`keys`.

        Raises:
            ValueError: the lengths differ, or the graphs have other node values than this version.
        """
        for name, given in (("run_secs", run_secs), ("keys", keys)):
            if given is not None and len(given) != len(programs):
                raise ValueError(f"{len(programs)} programs and {len(given)} {name}: one each is needed")
        if programs.graphs.values.shape[1] != len(VALUES):
            raise ValueError(f"{programs.graphs.values.shape[1]} values a node, expected {len(VALUES)}; extract again")
        table = _to_table(programs, run_secs, keys)
        self.folder.mkdir(parents=True, exist_ok=True)
        with _only_writer(self.folder):
            shards = self.shards()
            number = int(shards[-1].stem.removeprefix("shard-")) + 1 if shards else 0
            path, unfinished = self.folder / f"shard-{number:05d}.parquet", self.folder / "unfinished.tmp"
            with unfinished.open("wb") as file:
                pq.write_table(table, file, **_FORMAT)
                file.flush()
                os.fsync(file.fileno())
            unfinished.rename(path)
            _sync_folder(self.folder)
        return path

    def add_networks(self, tasks: Iterable[TaskInfo]) -> None:
        """Writes down networks that its tasks were found in since their programs were appended.

        Args:
            tasks: With all networks that are known now; one that the store has no program of is left out.
        """
        stored = self.tasks()
        hashes, known = {task.hash for task in stored}, {_identity(task): task.weights for task in stored}
        changed = {
            _identity(task): task
            for task in tasks
            if task.hash in hashes and not task.weights.items() <= known.get(_identity(task), {}).items()
        }
        if changed:
            self.append(_without_programs(tuple(changed.values()), self.detail() or "tree"))

    def load(self, *, with_features: bool = False) -> MeasuredPrograms:
        """All programs in memory, in the order they were appended.

        Raises:
            ValueError: the store is empty, or features are wanted and a shard has none.
        """
        return _concatenate([*self._parts(with_features, None)], self.tasks(), self.folder)

    def iterate(self, batch_programs: int, *, with_features: bool = False) -> Iterator[MeasuredPrograms]:
        """The programs in parts of up to ``batch_programs``, for stores larger than memory.

        Every part numbers the tasks as :meth:`tasks` does. Its ``throughput()`` knows the best of the part alone.

        Raises:
            ValueError: features are wanted and a shard has none.
        """
        yield from self._parts(with_features, batch_programs)

    def _parts(self, with_features: bool, batch_programs: int | None) -> Iterator[MeasuredPrograms]:
        # In this order: a shard appended in between may add tasks that are not needed, but none is missing.
        shards, tasks = self.shards(), self.tasks()
        numbers = {_identity(task): i for i, task in enumerate(tasks)}
        for path in shards:
            file, info = _open(path)
            if with_features and not info.feature_columns and file.metadata.num_rows:
                raise ValueError(
                    f"{path} holds no per-store features; extract its programs with them into a new folder"
                )
            columns = [*_COLUMNS, "features"] if with_features else _COLUMNS
            renumber = np.array([numbers[_identity(task)] for task in info.tasks], np.int32)
            with _named(path):
                for batch in file.iter_batches(batch_programs or max(1, file.metadata.num_rows), columns=columns):
                    yield _from_batch(batch, info, tasks, renumber, with_features)


def _identity(task: TaskInfo) -> tuple[str, ...]:
    return task.hash, task.target, task.scheduler, task.hardware


def _without_programs(tasks: tuple[TaskInfo, ...], detail: Detail) -> MeasuredPrograms:
    numbers, offsets = np.zeros(0, np.int32), np.zeros(1, np.int64)
    graphs = ProgramGraphs(
        (),
        numbers,
        np.zeros((0, len(VALUES)), np.float32),
        np.zeros((2, 0), np.int32),
        np.zeros(0, np.int8),
        offsets,
        offsets,
        detail=detail,
    )
    return MeasuredPrograms(graphs, tasks, numbers, np.zeros(0), np.zeros(0, np.float32), (), ())


def _open(path: Path) -> tuple[Any, _ShardInfo]:
    """A shard's Parquet file and its metadata.

    Raises:
        ValueError: it is damaged, no shard, or of another version.
    """
    with _named(path):
        file = pq.ParquetFile(path, memory_map=True, page_checksum_verification=True)
    meta = json.loads((file.schema_arrow.metadata or {}).get(_META, b"{}"))
    if meta.get("version") != VERSION:
        raise ValueError(f"{path} has version {meta.get('version')} of the graph store, not {VERSION}; extract again")
    if meta["values"] != _VALUE_NAMES:
        other = sorted(set(meta["values"]) ^ set(_VALUE_NAMES)) or ["their order"]
        raise ValueError(
            f"{path} was written with other node values than this version's (differing in {', '.join(other[:5])}); "
            "extract the programs again into a new folder"
        )
    tasks = tuple(TaskInfo(**task) for task in meta["tasks"])
    return file, _ShardInfo(tuple(meta["type_names"]), tasks, meta["feature_columns"], meta["detail"])


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Names the shard in Arrow's errors."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        first = (str(error).splitlines() or [repr(error)])[0]
        raise ValueError(f"{path} cannot be read ({first}); delete it and extract again, the rest is kept") from error


@contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    """Keeps other processes from taking the same shard number."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _sync_folder(folder: Path) -> None:
    """Without this, a rename can be lost when the power is."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _to_table(
    programs: MeasuredPrograms, run_secs: Sequence[Sequence[float]] | None, keys: Sequence[str] | None
) -> pa.Table:
    graphs, features = programs.graphs, programs.per_store_features
    meta = {
        "version": VERSION,
        "values": _VALUE_NAMES,
        "type_names": list(graphs.type_names),
        "tasks": [{**asdict(task), "weights": dict(task.weights)} for task in programs.tasks],
        "feature_columns": int(features.rows.shape[1]) if features is not None else 0,
        "detail": graphs.detail,
    }
    columns = {
        "key": pa.array(keys if keys is not None else [""] * len(programs), pa.string()),
        "task": pa.array(programs.task, pa.int32()),
        "latency": pa.array(programs.latency, pa.float64()),
        "noise": pa.array(programs.noise, pa.float32()),
        "run_secs": pa.array(run_secs, pa.list_(pa.float64())) if run_secs is not None else pa.nulls(len(programs)),
        "failure": pa.array(programs.failure, pa.string()),
        "phase": pa.array(programs.phase, pa.string()),
        "graph_error": pa.array([graphs.errors.get(i) for i in range(len(programs))], pa.string()),
        "node_type": _binary(graphs.node_type, np.int32, graphs.node_offsets),
        "values": _binary(graphs.values, np.float32, graphs.node_offsets),
        # Source and target of an edge side by side: an edge is one piece of the array, as a node's values are.
        "edges": _binary(graphs.edges.T, np.int32, graphs.edge_offsets),
        "relation": _binary(graphs.relation, np.int8, graphs.edge_offsets),
        "features": pa.nulls(len(programs), pa.large_binary())
        if features is None
        else _binary(features.rows, np.float32, features.offsets),
    }
    if run_secs is None:
        columns["run_secs"] = columns["run_secs"].cast(pa.list_(pa.float64()))
    return pa.table(columns).replace_schema_metadata({_META: json.dumps(meta)})


def _binary(array: npt.NDArray[Any], dtype: npt.DTypeLike, offsets: npt.NDArray[np.int64]) -> pa.Array:
    """One binary value a program: its rows of ``array``."""
    array = np.ascontiguousarray(array, dtype)
    row_bytes = array.itemsize * int(np.prod(array.shape[1:]))
    ends = np.ascontiguousarray(offsets * row_bytes, np.int64)
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(ends), pa.py_buffer(array)])


def _array(column: Any, dtype: npt.DTypeLike, row_shape: tuple[int, ...] = ()) -> tuple[Any, npt.NDArray[np.int64]]:
    """The inverse of :func:`_binary`: all rows, and where each program's begin. No copy."""
    column = column.cast(pa.large_binary())
    _, ends, data = column.buffers()
    bounds = np.frombuffer(ends, np.int64)[column.offset : column.offset + len(column) + 1]
    row_bytes = np.dtype(dtype).itemsize * int(np.prod(row_shape))
    rows = np.frombuffer(data if data is not None else b"", np.uint8)[bounds[0] : bounds[-1]].view(dtype)
    return rows.reshape(-1, *row_shape), (bounds - bounds[0]) // row_bytes


def _from_batch(
    batch: Any, info: _ShardInfo, tasks: tuple[TaskInfo, ...], renumber: npt.NDArray[np.int32], with_features: bool
) -> MeasuredPrograms:
    """A record batch as programs; ``tasks`` are the whole store's, ``renumber`` maps the shard's numbers to theirs."""
    node_type, node_offsets = _array(batch["node_type"], np.int32)
    values, _ = _array(batch["values"], np.float32, (len(VALUES),))
    edges, edge_offsets = _array(batch["edges"], np.int32, (2,))
    relation, _ = _array(batch["relation"], np.int8)
    errors = {i: error for i, error in enumerate(batch["graph_error"].to_pylist()) if error is not None}
    graphs = ProgramGraphs(
        info.type_names,
        node_type,
        values,
        np.ascontiguousarray(edges.T),
        relation,
        node_offsets,
        edge_offsets,
        errors,
        info.detail,
    )
    features = None
    if with_features:
        features = RaggedFeatures(*_array(batch["features"], np.float32, (info.feature_columns,)))
    return MeasuredPrograms(
        graphs,
        tasks,
        renumber[batch["task"].to_numpy()],
        batch["latency"].to_numpy(),
        batch["noise"].to_numpy(),
        tuple(batch["failure"].to_pylist()),
        tuple(batch["phase"].to_pylist()),
        features,
    )


def _concatenate(parts: Sequence[MeasuredPrograms], tasks: tuple[TaskInfo, ...], folder: Path) -> MeasuredPrograms:
    if not parts:
        raise ValueError(f"{folder} holds no program; extract a collection into it first")
    features = None
    if parts[0].per_store_features is not None:
        each = [part.per_store_features for part in parts if part.per_store_features is not None]
        counts = np.concatenate([np.diff(feature.offsets) for feature in each])
        offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        features = RaggedFeatures(np.concatenate([feature.rows for feature in each]), offsets)
    return MeasuredPrograms(
        ProgramGraphs.concatenate([part.graphs for part in parts]),
        tasks,
        np.concatenate([part.task for part in parts]),
        np.concatenate([part.latency for part in parts]),
        np.concatenate([part.noise for part in parts]),
        tuple(text for part in parts for text in part.failure),
        tuple(text for part in parts for text in part.phase),
        features,
    )
