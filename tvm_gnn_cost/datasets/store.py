"""The graph store: measured programs in a folder of Parquet files (``datasets.shards``)."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.datasets.programs import MeasuredPrograms, Programs, RaggedFeatures, TaskInfo
from tvm_gnn_cost.datasets.shards import Shard, write_shard
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import replacing
from tvm_gnn_cost.graphs.program_graph import Detail, ProgramGraphs
from tvm_gnn_cost.graphs.ragged import offsets_of
from tvm_gnn_cost.graphs.values import VALUES


class GraphStore:
    """Measured programs on disk.

    Appending is atomic: other processes see a shard whole or not at all. Every method that reads raises InputError if a
    shard is damaged or has another version.

    >>> GraphStore("no such folder").shards()
    []

    Args:
        folder: The folder of the shards; the first :meth:`append` creates it.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._next: int | None = None

    def __len__(self) -> int:
        """Number of programs."""
        return sum(len(Shard(path)) for path in self.shards())

    def shards(self) -> list[Path]:
        """The shards in the order in which they were written."""
        return sorted(self.folder.glob("shard-*.parquet"), key=_number)

    def keys(self) -> set[str]:
        """The keys of all programs that have one."""
        result: set[str] = set()
        for path in self.shards():
            result.update(Shard(path).keys())
        result.discard("")
        return result

    def detail(self) -> Detail | None:
        """The detail of the graphs; None for an empty store."""
        shards = self.shards()
        return Shard(shards[0]).detail if shards else None

    def tasks(self) -> tuple[TaskInfo, ...]:
        """All tasks, each with its networks in all shards."""
        merged: dict[tuple[str, ...], TaskInfo] = {}
        for path in self.shards():
            for task in Shard(path).tasks:
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
            programs: The programs. Tasks without a program are written too, which adds networks to tasks.
            run_secs: For each program, the latency of each repeat in seconds; pairs of programs whose order is
                repeatable have a metric of their own.
            keys: For each program a name, which :meth:`keys` returns.

        Raises:
            InputError: the lengths differ, or the graphs have another number of node features than this version.
        """
        for name, given in (("run_secs", run_secs), ("keys", keys)):
            if given is not None and len(given) != len(programs):
                raise InputError(f"{len(programs)} programs and {len(given)} {name}: one each is needed")
        if programs.graphs.x.shape[1] != len(VALUES):
            raise InputError(f"{programs.graphs.x.shape[1]} features per node, expected {len(VALUES)}; extract again")
        self.folder.mkdir(parents=True, exist_ok=True)
        with _only_writer(self.folder):
            path = self._new_path()
            with replacing(path) as unfinished:
                write_shard(unfinished, programs, run_secs, keys)
        return path

    def add_networks(self, tasks: Iterable[TaskInfo]) -> None:
        """Adds networks to tasks whose programs are already stored.

        Args:
            tasks: Tasks with all of their networks; tasks that are not in the store are ignored.
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

    def load(self, *, with_features: bool = False, networks: Collection[str] = ()) -> MeasuredPrograms:
        """Loads the programs, in the order in which they were appended.

        Args:
            with_features: Whether to load TVM's per-store features too.
            networks: Load only the programs of tasks that occur in one of these networks; by default all.

        Raises:
            InputError: the store is empty, or a shard has no features and ``with_features`` is set.
        """
        parts = [_of_networks(part, networks) if networks else part for part in self._parts(with_features, None)]
        if not parts:
            raise self._empty()
        return _concatenate(parts)

    def iterate(self, batch_programs: int, *, with_features: bool = False) -> Iterator[MeasuredPrograms]:
        """Yields the programs in batches, for stores larger than memory.

        Every batch has all tasks of :meth:`tasks`; its ``throughput()`` is relative to the best programs of the batch.

        Args:
            batch_programs: Maximum number of programs per batch.
            with_features: Whether to load TVM's per-store features too.

        Raises:
            InputError: a shard has no features and ``with_features`` is set.
        """
        yield from self._parts(with_features, batch_programs)

    def programs(self, memory: int = 0) -> Programs:
        """All programs for training, in the order in which they were appended.

        Args:
            memory: Maximum size of the graphs in memory, in bytes. Larger stores load only latencies and tasks, about
                40 bytes per program, and read graphs on access.

        Raises:
            InputError: the store is empty.
        """
        paths, tasks = self.shards(), self.tasks()
        numbers = {task.identity: i for i, task in enumerate(tasks)}
        results: list[tuple[npt.NDArray[np.int32], npt.NDArray[np.float64]]] = []
        types, unpacked = dict[str, None](), 0
        for path in paths:
            shard = Shard(path)
            task, latency = shard.tasks_and_latencies()
            results.append((_numbers_of(shard, numbers)[task], latency))
            types.update(dict.fromkeys(shard.type_names))
            unpacked += shard.unpacked
        if not any(len(latency) for _, latency in results):
            raise self._empty()
        task, latency = (np.concatenate(parts) for parts in zip(*results, strict=True))
        none = ProgramGraphs.none(tuple(types), len(VALUES), shard.detail)
        files = StoredFiles(paths, offsets_of([len(latency) for _, latency in results]), none)
        programs = Programs(StoredGraphs(files, np.arange(len(task))), tasks, task, latency)
        return programs.in_memory() if unpacked <= memory else programs

    def _new_path(self) -> Path:
        """The file of the next shard. The folder is listed once, because it may hold many thousands of files."""
        if self._next is None:
            shards = self.shards()
            self._next = _number(shards[-1]) + 1 if shards else 0
        # Another process may have appended shards.
        while (path := self.folder / f"shard-{self._next:05d}.parquet").exists():
            self._next += 1
        return path

    def _parts(self, with_features: bool, batch_programs: int | None) -> Iterator[MeasuredPrograms]:
        # Shards first: a shard that is appended in between can then only add unused tasks.
        shards, tasks = self.shards(), self.tasks()
        numbers = {task.identity: i for i, task in enumerate(tasks)}
        for path in shards:
            shard = Shard(path)
            table = _numbers_of(shard, numbers)
            for part in shard.iterate(batch_programs, with_features):
                yield replace(part, tasks=tasks, task=table[part.task])

    def _empty(self) -> InputError:
        return InputError(f"{self.folder} holds no programs; extract a collection into it first")


def _numbers_of(shard: Shard, numbers: Mapping[tuple[str, ...], int]) -> npt.NDArray[np.int32]:
    """The index in the store of each task of a shard."""
    return np.array([numbers[task.identity] for task in shard.tasks], np.int32)


def _of_networks(part: MeasuredPrograms, networks: Collection[str]) -> MeasuredPrograms:
    """The programs of a batch whose tasks occur in one of the networks; all tasks are kept."""
    wanted = [number for number in np.unique(part.task).tolist() if part.tasks[number].weights.keys() & networks]
    rows = np.flatnonzero(np.isin(part.task, wanted))
    return replace(part.select(rows), tasks=part.tasks, task=part.task[rows])


def _without_programs(tasks: tuple[TaskInfo, ...], detail: Detail) -> MeasuredPrograms:
    graphs, task = ProgramGraphs.none((), len(VALUES), detail), np.zeros(0, np.int32)
    return MeasuredPrograms(graphs, tasks, task, np.zeros(0), np.zeros(0, np.float32), (), ())


def _number(shard: Path) -> int:
    number = shard.stem.removeprefix("shard-")
    if not number.isdecimal():
        raise InputError(f"{shard}: the name of a shard is shard-NUMBER.parquet; rename or remove this file")
    return int(number)


@contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    """Locks the folder: two processes would write the same shard number."""
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _concatenate(parts: Sequence[MeasuredPrograms]) -> MeasuredPrograms:
    features = None
    if parts[0].per_store_features is not None:
        each = [part.per_store_features for part in parts if part.per_store_features is not None]
        features = RaggedFeatures.concatenate(each)
    halves = [part.halves for part in parts if part.halves is not None]
    return MeasuredPrograms(
        ProgramGraphs.concatenate([part.graphs for part in parts]),
        parts[0].tasks,
        np.concatenate([part.task for part in parts]),
        np.concatenate([part.latency for part in parts]),
        np.concatenate([part.noise for part in parts]),
        tuple(text for part in parts for text in part.failure),
        tuple(text for part in parts for text in part.phase),
        features,
        np.concatenate(halves) if len(halves) == len(parts) else None,
    )


#: Shards that stay open: opening one takes about as long as reading a row group.
_OPEN = 64


class StoredFiles:
    """The shards of a store, of which a limited number is open.

    Args:
        paths: The files.
        starts: int64[len(paths) + 1], the index of each shard's first program, and the number of programs.
        none: An empty set of graphs with all node types of the store.
    """

    def __init__(self, paths: Sequence[Path], starts: npt.NDArray[np.int64], none: ProgramGraphs) -> None:
        self.starts, self.none = starts, none
        self._shard = lru_cache(_OPEN)(lambda number: Shard(paths[number]))

    def read(self, programs: npt.NDArray[np.int64]) -> ProgramGraphs:
        """The graphs of the programs with the given indices, which are ascending and unique."""
        shard_of = np.searchsorted(self.starts, programs, side="right") - 1
        parts = [self.none]
        for number in np.unique(shard_of).tolist():
            parts += self._shard(number).graphs(programs[shard_of == number] - self.starts[number])
        # All use the node types of the first part.
        return ProgramGraphs.concatenate(parts)


class StoredGraphs:
    """G program graphs in a store.

    Args:
        files: The store.
        programs: int64[G], the indices of the programs in the store.
    """

    def __init__(self, files: StoredFiles, programs: npt.NDArray[np.int64]) -> None:
        self._files, self._programs = files, programs

    def __len__(self) -> int:
        return len(self._programs)

    def select(self, graphs: npt.NDArray[np.int64]) -> StoredGraphs:
        """The graphs with the given numbers, in the given order; nothing is read."""
        return StoredGraphs(self._files, self._programs[graphs])

    def read(self) -> ProgramGraphs:
        """The graphs in memory.

        Raises:
            InputError: a shard is damaged.
        """
        programs, place = np.unique(self._programs, return_inverse=True)
        output = self._files.read(programs)
        return output if np.array_equal(place, np.arange(len(output))) else output.select(place)
