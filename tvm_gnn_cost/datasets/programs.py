"""Measured programs in memory: graphs, tasks and what was measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tvm_gnn_cost.graphs.program_graph import ProgramGraphs


@dataclass(frozen=True)
class TaskInfo:
    """One tuning task.

    Attributes:
        hash: Structural hash of the unscheduled workload: two tasks are the same one if theirs are equal.
        name: What TVM calls it.
        target: The target as JSON text.
        weights: Network -> how many times the task occurs in it.
        scheduler: ``meta-schedule`` or ``auto-scheduler``.
        hardware: The folder of measure records, where the target does not name the machine; else empty.
    """

    hash: str
    name: str
    target: str
    weights: Mapping[str, int]
    scheduler: str = "meta-schedule"
    hardware: str = ""


#: Columns of the per-store features, with the default settings of either of TVM's schedulers.
PER_STORE_COLUMNS = 164


@dataclass(frozen=True)
class RaggedFeatures:
    """One float32 matrix a program, [stores, features], laid end to end (TVM's per-store features)."""

    rows: npt.NDArray[np.float32]
    offsets: npt.NDArray[np.int64]

    def __getitem__(self, program: int) -> npt.NDArray[np.float32]:
        return self.rows[self.offsets[program] : self.offsets[program + 1]]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def of(cls, programs: Sequence[npt.NDArray[np.float32]]) -> RaggedFeatures:
        """From the matrix of each program, float32[stores, ``PER_STORE_COLUMNS``]."""
        offsets = np.concatenate([[0], np.cumsum([len(rows) for rows in programs])]).astype(np.int64)
        return cls(np.concatenate([np.zeros((0, PER_STORE_COLUMNS), np.float32), *programs]), offsets)


@dataclass(frozen=True)
class MeasuredPrograms:
    """P measured programs.

    Attributes:
        graphs: P program graphs.
        tasks: The tasks that occur.
        task: int32[P], number in ``tasks``.
        latency: float64[P] seconds, the median of the repeats; infinite where the program failed.
        noise: float32[P], coefficient of variation over the repeats; NaN where there are fewer than two.
        failure: P texts; empty where the measurement succeeded, else its kind (``build-timeout``, ...).
        phase: P texts, how the program was sampled (``random``, ``guided``); empty where that is not known.
        per_store_features: What TVM's XGBoost baseline reads; None where it was not extracted.
    """

    graphs: ProgramGraphs
    tasks: tuple[TaskInfo, ...]
    task: npt.NDArray[np.int32]
    latency: npt.NDArray[np.float64]
    noise: npt.NDArray[np.float32]
    failure: tuple[str, ...]
    phase: tuple[str, ...]
    per_store_features: RaggedFeatures | None = None

    def __len__(self) -> int:
        return len(self.task)

    def throughput(self) -> npt.NDArray[np.float32]:
        """float32[P]: the task's lowest latency over the program's, in [0, 1]; 0 for a failed program.

        This is what every model is trained to predict (TenSet, Zheng et al. 2021, section 4).
        """
        best = np.full(len(self.tasks), np.inf)
        np.minimum.at(best, self.task, self.latency)
        with np.errstate(invalid="ignore"):
            ratio = best[self.task] / self.latency
        return np.where(np.isfinite(self.latency), ratio, 0.0).astype(np.float32)

    @property
    def networks(self) -> set[str]:
        """The networks that any task occurs in."""
        return {network for task in self.tasks for network in task.weights}

    def select(self, programs: npt.NDArray[np.int64]) -> MeasuredPrograms:
        """The given programs in the given order; tasks that no longer occur are dropped."""
        used, task = np.unique(self.task[programs], return_inverse=True)
        features = self.per_store_features
        if features is not None:
            counts = np.diff(features.offsets)[programs]
            offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
            rows = np.repeat(features.offsets[programs] - offsets[:-1], counts) + np.arange(offsets[-1])
            features = RaggedFeatures(features.rows[rows], offsets)
        return MeasuredPrograms(
            self.graphs.select(programs),
            tuple(self.tasks[i] for i in used.tolist()),
            task.astype(np.int32),
            self.latency[programs],
            self.noise[programs],
            tuple(self.failure[i] for i in programs.tolist()),
            tuple(self.phase[i] for i in programs.tolist()),
            features,
        )
