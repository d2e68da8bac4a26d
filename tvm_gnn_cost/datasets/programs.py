"""Measured programs: graphs, tasks and measurements."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.datasets.records import latency_and_noise
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.program_graph import Graphs, ProgramGraphs
from tvm_gnn_cost.graphs.ragged import gather, join, offsets_of


def relative_throughput(latency: npt.NDArray[np.float64], task: npt.NDArray[np.int32]) -> npt.NDArray[np.float32]:
    """The task's lowest latency over the program's: float32[P] in [0, 1]; 0 for failed programs.

    Args:
        latency: float64[P] in seconds, infinite for a failed program.
        task: int32[P], index of the task.
    """
    with np.errstate(invalid="ignore"):
        ratio = _best_of_task(latency, task) / latency
    return np.where(np.isfinite(latency), ratio, 0.0).astype(np.float32)


def _best_of_task(latency: npt.NDArray[np.float64], task: npt.NDArray[np.int32]) -> npt.NDArray[np.float64]:
    """The lowest latency of each program's task: float64[P]."""
    best = np.full(int(task.max(initial=-1)) + 1, np.inf)
    np.minimum.at(best, task, latency)
    return best[task]


@dataclass(frozen=True)
class TaskInfo:
    """One tuning task.

    Attributes:
        hash: Structural hash of the unscheduled workload; tasks with equal hashes compute the same.
        name: TVM's name of the task.
        target: The target as JSON text.
        weights: Network -> number of times that the task occurs in it.
        scheduler: ``meta-schedule`` or ``auto-scheduler``.
        hardware: The folder of ``measure_records`` if the target does not name the machine, else empty.
    """

    hash: str
    name: str
    target: str
    weights: Mapping[str, int]
    scheduler: str = "meta-schedule"
    hardware: str = ""

    @property
    def identity(self) -> tuple[str, ...]:
        """Equal for tasks with the same workload, target, scheduler and machine."""
        return self.hash, self.target, self.scheduler, self.hardware


#: Number of per-store features with the default settings of both of TVM's schedulers.
PER_STORE_COLUMNS = 164

#: Maximum number of programs of a training whose graphs are in memory at once, a few gigabytes.
SAMPLED = 65_536
#: A sample drops tasks rather than having fewer programs per task.
_FEWEST = 16


@dataclass(frozen=True)
class RaggedFeatures:
    """TVM's features per buffer store: a matrix float32[buffer stores, features] for each of P programs.

    Attributes:
        rows: float32[R, features], the concatenated matrices of all programs.
        offsets: int64[P + 1]; program ``p`` has the rows ``offsets[p]:offsets[p + 1]``.
    """

    rows: npt.NDArray[np.float32]
    offsets: npt.NDArray[np.int64]

    def __getitem__(self, program: int) -> npt.NDArray[np.float32]:
        return self.rows[self.offsets[program] : self.offsets[program + 1]]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def select(self, programs: npt.NDArray[np.int64]) -> RaggedFeatures:
        """The matrices of the given programs, in the given order."""
        rows, offsets = gather(self.offsets, programs)
        return RaggedFeatures(self.rows[rows], offsets)

    @classmethod
    def from_matrices(cls, matrices: Sequence[npt.NDArray[np.float32]]) -> RaggedFeatures:
        """Joins the matrices of the programs, each float32[stores, ``PER_STORE_COLUMNS``]."""
        rows = np.concatenate([np.zeros((0, PER_STORE_COLUMNS), np.float32), *matrices])
        return cls(rows, offsets_of([len(matrix) for matrix in matrices]))

    @staticmethod
    def concatenate(parts: Sequence[RaggedFeatures]) -> RaggedFeatures:
        """Joins the matrices of all programs of several parts."""
        return RaggedFeatures(np.concatenate([part.rows for part in parts]), join([part.offsets for part in parts]))


@dataclass(frozen=True)
class Programs:
    """P programs with their latencies; their graphs are in memory or in a store.

    Attributes:
        graphs: P program graphs.
        tasks: The tasks of the programs.
        task: int32[P], index into ``tasks``.
        latency: float64[P], the fastest repeat in seconds; infinite if the program failed.
    """

    graphs: Graphs
    tasks: tuple[TaskInfo, ...]
    task: npt.NDArray[np.int32]
    latency: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.task)

    def throughput(self) -> npt.NDArray[np.float32]:
        """Relative throughput: float32[P] in [0, 1], the task's lowest latency over the program's; 0 if it failed.

        Every model is trained to predict it (TenSet, Zheng et al. 2021, section 4).
        """
        return relative_throughput(self.latency, self.task)

    @property
    def networks(self) -> set[str]:
        """The networks in which any of the tasks occurs."""
        return {network for task in self.tasks for network in task.weights}

    def select(self, programs: npt.NDArray[np.int64]) -> Programs:
        """The programs with the given numbers, in the given order; tasks without a program are dropped."""
        return Programs(self.graphs.select(programs), *self._tasks_of(programs), self.latency[programs])

    def in_memory(self) -> Self:
        """The same programs with their graphs in memory.

        Raises:
            InputError: the graphs are in a store, and it is damaged.
        """
        return replace(self, graphs=self.graphs.read())

    def sample(self, limit: int, seed: int, of_task: int | None = None) -> Programs:
        """Samples at most ``limit`` programs, evenly over tasks.

        The programs of a task are drawn at random but include its fastest, so that relative throughputs do not change.
        Tasks are dropped only if there would be fewer than 16 programs per task.

        Args:
            limit: Maximum number of programs.
            seed: Seed of the sample.
            of_task: Maximum number of programs per task; None for no limit.
        """
        counts = np.bincount(self.task, minlength=len(self.tasks))
        most = min(int(counts.max(initial=0)), of_task or len(self))
        if len(self) <= limit and counts.max(initial=0) <= most:
            return self
        fitting = bisect_right(range(_FEWEST, most + 1), limit, key=lambda item: int(np.minimum(counts, item).sum()))
        kept = np.minimum(counts, min(most, _FEWEST + max(0, fitting - 1)))
        rng = np.random.default_rng(seed)
        order = rng.permutation(len(counts))
        kept[order[np.cumsum(kept[order]) > limit]] = 0
        by_task = np.lexsort((rng.random(len(self)), self.latency > _best_of_task(self.latency, self.task), self.task))
        task = self.task[by_task]
        place = np.arange(len(self)) - offsets_of(counts)[task]
        return self.select(np.sort(by_task[place < kept[task]]))

    def _tasks_of(self, programs: npt.NDArray[np.int64]) -> tuple[tuple[TaskInfo, ...], npt.NDArray[np.int32]]:
        """The tasks of the given programs, and the index of each program's task."""
        used, task = np.unique(self.task[programs], return_inverse=True)
        return tuple(self.tasks[i] for i in used.tolist()), task.astype(np.int32)


@dataclass(frozen=True)
class MeasuredPrograms(Programs):
    """P measured programs in memory.

    Attributes:
        graphs: P program graphs.
        noise: float32[P], coefficient of variation over the repeats; NaN with fewer than two repeats.
        failure: Each program's :class:`~tvm_gnn_cost.datasets.records.Failure`; empty if it ran.
        phase: How each program was sampled (``random`` or ``guided``); empty if unknown.
        per_store_features: The input of TVM's XGBoost baseline; None if it was not extracted.
        halves: float64[P, 2], the fastest of the first, third, ... and of the second, fourth, ... repeat in seconds;
            NaN where there is none. None if the repeats are not known.
    """

    graphs: ProgramGraphs
    noise: npt.NDArray[np.float32]
    failure: tuple[str, ...]
    phase: tuple[str, ...]
    per_store_features: RaggedFeatures | None = None
    halves: npt.NDArray[np.float64] | None = None

    def select(self, programs: npt.NDArray[np.int64]) -> MeasuredPrograms:
        """The programs with the given numbers, in the given order; tasks without a program are dropped."""
        features = self.per_store_features
        return MeasuredPrograms(
            self.graphs.select(programs),
            *self._tasks_of(programs),
            self.latency[programs],
            self.noise[programs],
            tuple(self.failure[i] for i in programs.tolist()),
            tuple(self.phase[i] for i in programs.tolist()),
            features.select(programs) if features is not None else None,
            self.halves[programs] if self.halves is not None else None,
        )


def with_features(programs: MeasuredPrograms) -> tuple[RaggedFeatures, list[int]]:
    """The features of all programs, and the indices of the programs with at least one buffer store.

    Raises:
        InputError: the programs have no per-store features.
    """
    features = programs.per_store_features
    if features is None:
        raise InputError(
            "the graph store has no per-store features, which TVM's models read; extract it again with --features"
        )
    return features, [i for i in range(len(programs)) if len(features[i])]


@dataclass(frozen=True)
class Measurement:
    """The measurement of one program.

    Attributes:
        task: Its task.
        run_secs: Latency of each repeat in seconds; empty if the program failed.
        failure: Its :class:`~tvm_gnn_cost.datasets.records.Failure`; empty if it ran.
        phase: How it was sampled; empty if unknown.
    """

    task: TaskInfo
    run_secs: tuple[float, ...]
    failure: str
    phase: str


def measured_programs(
    graphs: ProgramGraphs, measurements: Sequence[Measurement], features: Sequence[npt.NDArray[np.float32]] | None
) -> MeasuredPrograms:
    """Joins the graphs and measurements of P programs; tasks with the same identity become one.

    Args:
        graphs: P graphs.
        measurements: P measurements.
        features: P matrices of per-store features, or None.
    """
    tasks: dict[tuple[str, ...], TaskInfo] = {}
    for measurement in measurements:
        known = tasks.get(measurement.task.identity, measurement.task)
        tasks[measurement.task.identity] = replace(known, weights={**known.weights, **measurement.task.weights})
    numbers = {identity: number for number, identity in enumerate(tasks)}
    latency, noise = latency_and_noise([measurement.run_secs for measurement in measurements])
    return MeasuredPrograms(
        graphs,
        tuple(tasks.values()),
        np.array([numbers[measurement.task.identity] for measurement in measurements], np.int32),
        latency,
        noise,
        tuple(measurement.failure for measurement in measurements),
        tuple(measurement.phase for measurement in measurements),
        RaggedFeatures.from_matrices(features) if features is not None else None,
    )
