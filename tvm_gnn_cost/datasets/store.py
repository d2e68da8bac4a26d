"""The graph store: measured programs in a folder of Parquet shards.

Each row is a program; its arrays are binary columns, little-endian and row-major. The schema's metadata holds JSON
under ``graph_store``: the format's version, the names of the node values, and the node types and tasks to which the
rows' numbers refer. So each shard can be read by itself, and a store is the union of its shards.
"""

from __future__ import annotations

import fcntl
import json
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
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import replacing
from tvm_gnn_cost.graphs.program_graph import Detail, ProgramGraphs
from tvm_gnn_cost.graphs.values import VALUES

VERSION = 2
_META = b"graph_store"
_META_FIELDS = {"values": list, "type_names": list, "tasks": list, "feature_columns": int, "detail": str}
_VALUE_NAMES = [name for name, _ in VALUES]
_COLUMNS = [
    *("task", "latency", "noise", "failure", "phase"),
    *("graph_error", "node_type", "values", "edges", "relation"),
]

# Level 9 takes half a millisecond per program; the shards are a quarter smaller than at level 1 and read as fast.
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

    Appending is atomic: other processes see a shard whole or not at all. Every method that reads raises InputError if a
    shard is damaged or has another version.

    >>> GraphStore(Path("no such folder")).shards()
    []

    Args:
        folder: The folder of the shards; the first :meth:`append` creates it.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __len__(self) -> int:
        """Number of programs."""
        return sum(_open(path)[0].metadata.num_rows for path in self.shards())

    def shards(self) -> list[Path]:
        """The files of the shards in the order in which they were written."""
        return sorted(self.folder.glob("shard-*.parquet"), key=_number)

    def keys(self) -> set[str]:
        """The keys of all programs that were appended with one."""
        found: set[str] = set()
        for path in self.shards():
            with _named(path):
                found.update(_open(path)[0].read(["key"]).column("key").to_pylist())
        return found - {""}

    def detail(self) -> Detail | None:
        """The detail of the graphs; None for an empty store."""
        shards = self.shards()
        return _open(shards[0])[1].detail if shards else None

    def tasks(self) -> tuple[TaskInfo, ...]:
        """All tasks of the store, each with its networks of all shards."""
        merged: dict[tuple[str, ...], TaskInfo] = {}
        for path in self.shards():
            for task in _open(path)[1].tasks:
                known = merged.get(task.identity)
                weights = {**known.weights, **task.weights} if known else task.weights
                merged[task.identity] = replace(task, weights=weights)
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
            programs: The programs. Their tasks are written even if they have no program: this adds networks to tasks.
            run_secs: For each program the latency of each repeat in seconds; the package itself does not read them.
            keys: For each program a name, which :meth:`keys` returns.

        Raises:
            InputError: the lengths differ, or the graphs have another number of node values than this version.
        """
        for name, given in (("run_secs", run_secs), ("keys", keys)):
            if given is not None and len(given) != len(programs):
                raise InputError(f"{len(programs)} programs and {len(given)} {name}: one each is needed")
        if programs.graphs.values.shape[1] != len(VALUES):
            raise InputError(f"{programs.graphs.values.shape[1]} values a node, expected {len(VALUES)}; extract again")
        table = _to_table(programs, run_secs, keys)
        self.folder.mkdir(parents=True, exist_ok=True)
        with _only_writer(self.folder):
            shards = self.shards()
            number = _number(shards[-1]) + 1 if shards else 0
            path = self.folder / f"shard-{number:05d}.parquet"
            with replacing(path) as unfinished:
                pq.write_table(table, unfinished, **_FORMAT)
        return path

    def add_networks(self, tasks: Iterable[TaskInfo]) -> None:
        """Adds networks to tasks whose programs are already stored.

        Args:
            tasks: Tasks with all of their networks; a task that the store does not have is ignored.
        """
        stored = self.tasks()
        hashes, known = {task.hash for task in stored}, {task.identity: task.weights for task in stored}
        changed = {
            task.identity: task
            for task in tasks
            if task.hash in hashes and not task.weights.items() <= known.get(task.identity, {}).items()
        }
        if changed:
            self.append(_without_programs(tuple(changed.values()), self.detail() or "tree"))

    def load(self, *, with_features: bool = False) -> MeasuredPrograms:
        """Loads all programs, in the order in which they were appended.

        Args:
            with_features: Whether to load TVM's per-store features too.

        Raises:
            InputError: the store is empty, or a shard has no features and ``with_features`` is set.
        """
        return _concatenate([*self._parts(with_features, None)], self.tasks(), self.folder)

    def iterate(self, batch_programs: int, *, with_features: bool = False) -> Iterator[MeasuredPrograms]:
        """Yields the programs in parts, for stores larger than memory.

        Every part has the tasks of :meth:`tasks`. Its ``throughput()`` is relative to the best programs of the part.

        Args:
            batch_programs: Largest number of programs in a part.
            with_features: Whether to load TVM's per-store features too.

        Raises:
            InputError: a shard has no features and ``with_features`` is set.
        """
        yield from self._parts(with_features, batch_programs)

    def _parts(self, with_features: bool, batch_programs: int | None) -> Iterator[MeasuredPrograms]:
        # The shards first: one that is appended in between can then only add tasks that are not needed.
        shards, tasks = self.shards(), self.tasks()
        numbers = {task.identity: i for i, task in enumerate(tasks)}
        for path in shards:
            file, info = _open(path)
            if with_features and not info.feature_columns and file.metadata.num_rows:
                raise InputError(
                    f"{path} holds no per-store features; extract its programs with them into a new folder"
                )
            columns = [*_COLUMNS, "features"] if with_features else _COLUMNS
            renumber = np.array([numbers[task.identity] for task in info.tasks], np.int32)
            with _named(path):
                for batch in file.iter_batches(batch_programs or max(1, file.metadata.num_rows), columns=columns):
                    yield _from_batch(batch, path, info, tasks, renumber, with_features)


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


def _number(shard: Path) -> int:
    number = shard.stem.removeprefix("shard-")
    if not number.isdecimal():
        raise InputError(f"{shard}: the name of a shard is shard-NUMBER.parquet; rename or remove this file")
    return int(number)


def _open(path: Path) -> tuple[Any, _ShardInfo]:
    """A shard's Parquet file and its metadata.

    Raises:
        InputError: the file is damaged, is not a shard, or has another version.
    """
    with _named(path):
        file = pq.ParquetFile(path, memory_map=True, page_checksum_verification=True)
        schema = file.schema_arrow
    try:
        meta = json.loads((schema.metadata or {}).get(_META, b"{}"))
    except ValueError as error:
        raise _damaged(path, f"its metadata is not JSON: {error}") from error
    if not isinstance(meta, dict):
        raise _damaged(path, "its metadata is not a JSON object")
    if meta.get("version") != VERSION:
        raise InputError(f"{path} has version {meta.get('version')} of the graph store, not {VERSION}; extract again")
    for field, kind in _META_FIELDS.items():
        if not isinstance(meta.get(field), kind):
            raise _damaged(path, f"the field '{field}' of its metadata is missing or wrong")
    if meta["values"] != _VALUE_NAMES:
        other = sorted(set(map(str, meta["values"])) ^ set(_VALUE_NAMES)) or ["their order"]
        raise InputError(
            f"{path} was written with other node values than this version's (differing in {', '.join(other[:5])}); "
            "extract the programs again into a new folder"
        )
    missing = sorted({*_COLUMNS, "key", "features"} - set(schema.names))
    if missing:
        raise _damaged(path, f"it has no column '{missing[0]}'")
    try:
        tasks = tuple(TaskInfo(**task) for task in meta["tasks"])
    except TypeError as error:
        raise _damaged(path, f"the field 'tasks' of its metadata is wrong: {error}") from error
    if not all(isinstance(task.weights, dict) for task in tasks):
        raise _damaged(path, "the field 'tasks' of its metadata is wrong: the weights of a task are no JSON object")
    return file, _ShardInfo(tuple(meta["type_names"]), tasks, meta["feature_columns"], meta["detail"])


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turns Arrow's errors into an InputError that names the shard."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, (str(error).splitlines() or [repr(error)])[0]) from error


def _damaged(path: Path, reason: str) -> InputError:
    return InputError(f"{path} cannot be read ({reason}); delete it and extract again, the rest is kept")


@contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    """Waits until no other process appends to the folder: two would take the same shard number."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


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
        # One row for each edge, source and target, as the other arrays have one row for each node.
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
    """A binary column; the value of a program is its rows of ``array``."""
    array = np.ascontiguousarray(array, dtype)
    row_bytes = array.itemsize * int(np.prod(array.shape[1:]))
    ends = np.ascontiguousarray(offsets * row_bytes, np.int64)
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(ends), pa.py_buffer(array)])


def _array(column: Any, dtype: npt.DTypeLike, row_shape: tuple[int, ...] = ()) -> tuple[Any, npt.NDArray[np.int64]]:
    """The inverse of :func:`_binary`, without a copy: all rows, and the offset of each program's rows.

    Raises:
        pa.ArrowInvalid: the column is no binary column, or a value is no whole number of rows.
    """
    column = column.cast(pa.large_binary())
    _, ends, data = column.buffers()
    bounds = np.frombuffer(ends, np.int64)[column.offset : column.offset + len(column) + 1]
    row_bytes = np.dtype(dtype).itemsize * int(np.prod(row_shape))
    if row_bytes == 0 or ((bounds - bounds[0]) % row_bytes).any():
        raise pa.ArrowInvalid(f"an array is no whole number of rows of {row_bytes} bytes")
    rows = np.frombuffer(data if data is not None else b"", np.uint8)[bounds[0] : bounds[-1]].view(dtype)
    return rows.reshape(-1, *row_shape), (bounds - bounds[0]) // row_bytes


def _from_batch(
    batch: Any,
    path: Path,
    info: _ShardInfo,
    tasks: tuple[TaskInfo, ...],
    renumber: npt.NDArray[np.int32],
    with_features: bool,
) -> MeasuredPrograms:
    """A record batch as programs; ``renumber`` maps the shard's task numbers to the numbers of ``tasks``.

    Raises:
        InputError: the arrays of a program do not fit together.
    """
    node_type, node_offsets = _array(batch["node_type"], np.int32)
    values, value_offsets = _array(batch["values"], np.float32, (len(VALUES),))
    edges, edge_offsets = _array(batch["edges"], np.int32, (2,))
    relation, relation_offsets = _array(batch["relation"], np.int8)
    task = batch["task"].to_numpy()
    for field, fits in (
        ("task", _below(task, len(renumber))),
        ("node_type", _below(node_type, len(info.type_names))),
        ("values", np.array_equal(value_offsets, node_offsets)),
        ("edges", _below(edges, int(np.diff(node_offsets).max(initial=0)))),
        ("relation", np.array_equal(relation_offsets, edge_offsets)),
    ):
        if not fits:
            raise _damaged(path, f"the column '{field}' does not fit the others")
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
        renumber[task],
        batch["latency"].to_numpy(),
        batch["noise"].to_numpy(),
        tuple(batch["failure"].to_pylist()),
        tuple(batch["phase"].to_pylist()),
        features,
    )


def _below(numbers: npt.NDArray[np.integer], limit: int) -> bool:
    return len(numbers) == 0 or bool(numbers.min() >= 0 and numbers.max() < limit)


def _concatenate(parts: Sequence[MeasuredPrograms], tasks: tuple[TaskInfo, ...], folder: Path) -> MeasuredPrograms:
    if not parts:
        raise InputError(f"{folder} holds no program; extract a collection into it first")
    features = None
    if parts[0].per_store_features is not None:
        each = [part.per_store_features for part in parts if part.per_store_features is not None]
        features = RaggedFeatures.concatenate(each)
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
