"""One file of the graph store: a Parquet file of measured programs.

Each row is a program; its arrays are binary columns, little-endian and row-major. The schema's metadata holds JSON
under ``graph_store``: the format's version, the names of the node features, and the node types and tasks to which the
rows' numbers refer. Each shard can be read on its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tvm_gnn_cost.datasets.programs import PER_STORE_COLUMNS, MeasuredPrograms, RaggedFeatures, TaskInfo
from tvm_gnn_cost.errors import InputError, check_range
from tvm_gnn_cost.files import parse_json
from tvm_gnn_cost.graphs.program_graph import FILE_NAMES, Detail, ProgramGraphs
from tvm_gnn_cost.graphs.ragged import offsets_of
from tvm_gnn_cost.graphs.values import VALUES
from tvm_gnn_cost.typed_json import from_json

VERSION = 2
_META = b"graph_store"
_META_FIELDS = {"values": list, "type_names": list, "tasks": list, "feature_columns": int, "detail": str}
_VALUE_NAMES = [name for name, _ in VALUES]
_GRAPH_COLUMNS = ["graph_error", "node_type", "values", "edges", "relation"]
_COLUMNS = ["task", "latency", "noise", "run_secs", "failure", "phase", *_GRAPH_COLUMNS]
_TYPES = {
    **{name: pa.string() for name in ("key", "failure", "phase", "graph_error")},
    **{"task": pa.int32(), "latency": pa.float64(), "noise": pa.float32()},
    "run_secs": pa.list_(pa.float64()),
}

# Level 9 takes 0.5 ms per program; shards are a quarter smaller than at level 1, and are read as fast.
_FORMAT: dict[str, Any] = {
    "compression": "zstd",
    "compression_level": 9,
    "use_dictionary": ["failure", "phase"],
    # Training samples single programs, and a row group is the smallest unit of reading.
    "row_group_size": 16,
    # Values are not searched, and the minimum and maximum of each group would be as large as a small graph.
    "write_statistics": False,
    "write_page_checksum": True,
}

#: Minimum and maximum latency of a program that ran, in seconds; TVM records 1e10 for a failed one.
_LATENCIES = (1e-12, 1e10)

#: Row groups that are decompressed at a time when single programs are read.
_GROUPS_AT_ONCE = 64


class Shard:
    """A file of the graph store, open for reading. Every method raises InputError if the file is damaged.

    Args:
        path: The file.

    Attributes:
        type_names: The node types of its graphs.
        tasks: Its tasks.
        feature_columns: Length of TVM's per-store features; 0 without them.
        detail: The detail of its graphs.
        unpacked: Size of its columns after decompression, in bytes.

    Raises:
        InputError: the file is damaged, is not a shard, or has another version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with _named(path):
            self._file = pq.ParquetFile(path, memory_map=True, page_checksum_verification=True)
            schema = self._file.schema_arrow
        meta = _metadata(path, schema)
        try:
            self.tasks = tuple(from_json(TaskInfo, task) for task in meta["tasks"])
            for task in self.tasks:
                for network, weight in task.weights.items():
                    check_range(f"the weight of '{task.name}' in '{network}'", weight, 1, 2**31)
        except InputError as error:
            raise _damaged(path, f"the field 'tasks' of its metadata is wrong: {error}") from error
        self.type_names: tuple[str, ...] = tuple(meta["type_names"])
        self.feature_columns: int = meta["feature_columns"]
        self.detail: Detail = meta["detail"]
        groups = [self._file.metadata.row_group(number) for number in range(self._file.num_row_groups)]
        self.unpacked = sum(group.total_byte_size for group in groups)
        self._groups = offsets_of([group.num_rows for group in groups])

    def __len__(self) -> int:
        """Number of programs."""
        return int(self._groups[-1])

    def keys(self) -> list[str]:
        """The key of each program, empty where it has none."""
        with _named(self.path):
            result: list[str] = self._file.read(["key"]).column("key").to_pylist()
        return result

    def tasks_and_latencies(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]:
        """The number of each program's task among :attr:`tasks`, and its latency in seconds: int32[P], float64[P]."""
        with _named(self.path):
            table = self._file.read(["task", "latency"])
            task, latency = (table.column(name).to_numpy() for name in ("task", "latency"))
        self._check_measurements(task, latency)
        return task, latency

    def iterate(self, batch_programs: int | None, with_features: bool) -> Iterator[MeasuredPrograms]:
        """Yields the programs in batches.

        Args:
            batch_programs: Maximum number of programs per batch; None for a single batch.
            with_features: Whether to read TVM's per-store features too.

        Raises:
            InputError: the shard has no features and ``with_features`` is set.
        """
        if with_features and not self.feature_columns and len(self):
            raise InputError(
                f"{self.path} holds no per-store features; extract its programs with them into a new folder"
            )
        columns = [*_COLUMNS, "features"] if with_features else _COLUMNS
        with _named(self.path):
            for batch in self._file.iter_batches(batch_programs or max(1, len(self)), columns=columns):
                yield self._programs(batch, with_features)

    def graphs(self, programs: npt.NDArray[np.int64]) -> Iterator[ProgramGraphs]:
        """Yields the graphs of the given programs in batches; only their row groups are read.

        Args:
            programs: int64[n], indices of the programs in this shard, ascending.
        """
        group_of = np.searchsorted(self._groups, programs, side="right") - 1
        groups = np.unique(group_of)
        for start in range(0, len(groups), _GROUPS_AT_ONCE):
            part = groups[start : start + _GROUPS_AT_ONCE]
            with _named(self.path):
                table = self._file.read_row_groups(part.tolist(), columns=_GRAPH_COLUMNS, use_threads=False)
                (batch,) = table.combine_chunks().to_batches()
                graphs = self._graphs(batch)
            inside = np.isin(group_of, part)
            place = np.searchsorted(part, group_of[inside])
            before = offsets_of(self._groups[part + 1] - self._groups[part])
            rows = programs[inside] - self._groups[part][place] + before[place]
            yield graphs if len(rows) == len(graphs) else graphs.select(rows)

    def _programs(self, batch: Any, with_features: bool) -> MeasuredPrograms:
        """A record batch as programs.

        Raises:
            InputError: the arrays of a program do not fit together.
        """
        task, latency = batch["task"].to_numpy(), batch["latency"].to_numpy()
        self._check_measurements(task, latency)
        graphs, features = self._graphs(batch), None
        if with_features:
            features = RaggedFeatures(*_array(batch["features"], np.float32, (self.feature_columns,)))
            self._check("features", bool(np.isfinite(features.rows).all()))
        return MeasuredPrograms(
            graphs,
            self.tasks,
            task,
            latency,
            batch["noise"].to_numpy(),
            tuple(batch["failure"].to_pylist()),
            tuple(batch["phase"].to_pylist()),
            features,
            _halves(batch["run_secs"]),
        )

    def _graphs(self, batch: Any) -> ProgramGraphs:
        """The graphs of a record batch.

        Raises:
            InputError: the arrays of a graph do not fit together.
        """
        node_type, node_offsets = _array(batch["node_type"], np.int32)
        x, x_offsets = _array(batch["values"], np.float32, (len(VALUES),))
        edge_index, edge_offsets = _array(batch["edges"], np.int32, (2,))
        edge_type, edge_type_offsets = _array(batch["relation"], np.int8)
        self._check("values", np.array_equal(x_offsets, node_offsets))
        self._check("relation", np.array_equal(edge_type_offsets, edge_offsets))
        errors = {i: error for i, error in enumerate(batch["graph_error"].to_pylist()) if error is not None}
        graphs = ProgramGraphs(
            self.type_names,
            node_type,
            x,
            np.ascontiguousarray(edge_index.T),
            edge_type,
            node_offsets,
            edge_offsets,
            errors,
            self.detail,
        )
        wrong = graphs.wrong()
        self._check(FILE_NAMES.get(wrong or "", ""), wrong is None)
        return graphs

    def _check_measurements(self, task: npt.NDArray[np.int32], latency: npt.NDArray[np.float64]) -> None:
        self._check("task", _below(task, len(self.tasks)))
        # Failed programs have an infinite latency.
        fits = (latency >= _LATENCIES[0]) & (latency <= _LATENCIES[1]) | np.isposinf(latency)
        self._check("latency", bool(fits.all()))

    def _check(self, column: str, fits: bool) -> None:
        if not fits:
            raise _damaged(self.path, f"the column '{column}' has wrong values or does not fit the others")


def write_shard(
    path: Path,
    programs: MeasuredPrograms,
    run_secs: Sequence[Sequence[float]] | None,
    keys: Sequence[str] | None,
) -> None:
    """Writes a shard; see :meth:`~tvm_gnn_cost.datasets.store.GraphStore.append`."""
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
        "values": _binary(graphs.x, np.float32, graphs.node_offsets),
        # One row for each edge, source and target, as the other arrays have one row for each node.
        "edges": _binary(graphs.edge_index.T, np.int32, graphs.edge_offsets),
        "relation": _binary(graphs.edge_type, np.int8, graphs.edge_offsets),
        "features": pa.nulls(len(programs), pa.large_binary())
        if features is None
        else _binary(features.rows, np.float32, features.offsets),
    }
    if run_secs is None:
        columns["run_secs"] = columns["run_secs"].cast(pa.list_(pa.float64()))
    pq.write_table(pa.table(columns).replace_schema_metadata({_META: json.dumps(meta)}), path, **_FORMAT)


def _metadata(path: Path, schema: Any) -> dict[str, Any]:
    """The checked JSON of a shard's schema."""
    try:
        meta = parse_json((schema.metadata or {}).get(_META, b"{}"))
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
            f"{path} was written with other node features than this version's (differing in {', '.join(other[:5])}); "
            "extract the programs again into a new folder"
        )
    if not all(isinstance(name, str) for name in meta["type_names"]) or meta["detail"] not in get_args(Detail):
        raise _damaged(path, "the field 'type_names' or 'detail' of its metadata is wrong")
    if meta["feature_columns"] not in (0, PER_STORE_COLUMNS):
        raise _damaged(path, f"the field 'feature_columns' of its metadata is not {PER_STORE_COLUMNS}")
    for name in sorted({*_COLUMNS, "key", "features"}):
        if name not in schema.names:
            raise _damaged(path, f"it has no column '{name}'")
        there, usual = schema.field(name).type, _TYPES.get(name)
        if usual is not None and there != usual:
            raise _damaged(path, f"the column '{name}' is of type {there}, not {usual}")
    return meta


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Turns Arrow's errors into an InputError that names the shard."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise _damaged(path, (str(error).splitlines() or [repr(error)])[0]) from error


def _damaged(path: Path, reason: str) -> InputError:
    return InputError(f"{path} cannot be read ({reason}); delete it and extract again, the rest is kept")


def _binary(array: npt.NDArray[Any], dtype: npt.DTypeLike, offsets: npt.NDArray[np.int64]) -> pa.Array:
    """A binary column; the value of a program is its rows of ``array``."""
    array = np.ascontiguousarray(array, dtype)
    row_bytes = array.itemsize * int(np.prod(array.shape[1:]))
    ends = np.ascontiguousarray(offsets * row_bytes, np.int64)
    return pa.Array.from_buffers(pa.large_binary(), len(offsets) - 1, [None, pa.py_buffer(ends), pa.py_buffer(array)])


def _array(column: Any, dtype: npt.DTypeLike, row_shape: tuple[int, ...] = ()) -> tuple[Any, npt.NDArray[np.int64]]:
    """The inverse of :func:`_binary`, without a copy: all rows, and the offset of each program's rows.

    Raises:
        pa.ArrowInvalid: it is not a binary column, or a value is not a whole number of rows.
    """
    column = column.cast(pa.large_binary())
    _, ends, data = column.buffers()
    bounds = np.frombuffer(ends, np.int64)[column.offset : column.offset + len(column) + 1]
    row_bytes = np.dtype(dtype).itemsize * int(np.prod(row_shape))
    if row_bytes == 0 or ((bounds - bounds[0]) % row_bytes).any():
        raise pa.ArrowInvalid(f"an array is not a whole number of rows of {row_bytes} bytes")
    rows = np.frombuffer(data if data is not None else b"", np.uint8)[bounds[0] : bounds[-1]].view(dtype)
    return rows.reshape(-1, *row_shape), (bounds - bounds[0]) // row_bytes


def _halves(repeats: pa.ListArray) -> npt.NDArray[np.float64]:
    """See :class:`~tvm_gnn_cost.datasets.programs.MeasuredPrograms`."""
    bounds = repeats.offsets.to_numpy()
    program = np.repeat(np.arange(len(repeats)), np.diff(bounds))
    place = np.arange(len(program)) + bounds[0] - bounds[program]
    fastest = np.full((len(repeats), 2), np.inf)
    np.minimum.at(fastest, (program, place % 2), repeats.values.to_numpy()[bounds[0] : bounds[-1]])
    return np.where(np.isfinite(fastest), fastest, np.nan)


def _below(numbers: npt.NDArray[np.integer], limit: int) -> bool:
    return len(numbers) == 0 or bool(numbers.min() >= 0 and numbers.max() < limit)
