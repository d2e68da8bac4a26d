"""Implements the protocol of ``schedulers/scheduler.py`` for ``auto_scheduler``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import auto_scheduler
from tvm.target import Target

from tvm_gnn_cost.datasets.records import last_line
from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.graphs.program_graph import Detail, ProgramGraphs
from tvm_gnn_cost.schedulers.auto_scheduler.boosted_trees import AutoSchedulerTrees
from tvm_gnn_cost.schedulers.auto_scheduler.collection import TensetCollection, check_hardware_name
from tvm_gnn_cost.schedulers.auto_scheduler.compile import CompiledNetwork
from tvm_gnn_cost.schedulers.auto_scheduler.cost_model import GNNCostModel
from tvm_gnn_cost.schedulers.auto_scheduler.features import per_store_features
from tvm_gnn_cost.schedulers.auto_scheduler.folder import RecordFolder
from tvm_gnn_cost.schedulers.auto_scheduler.graphs import extract_states
from tvm_gnn_cost.schedulers.auto_scheduler.measure import measure_states
from tvm_gnn_cost.schedulers.auto_scheduler.networks import (
    HELD_OUT,
    TRAINING,
    extract_tasks,
    load_network,
    tasks_of_workload,
)
from tvm_gnn_cost.schedulers.auto_scheduler.operators import KINDS
from tvm_gnn_cost.schedulers.auto_scheduler.sampling import sample_states, untuned
from tvm_gnn_cost.schedulers.auto_scheduler.search import search
from tvm_gnn_cost.schedulers.auto_scheduler.target import local_target
from tvm_gnn_cost.schedulers.auto_scheduler.work_dir import RECORDS, latencies, save_untuned, schedules
from tvm_gnn_cost.schedulers.scheduler import (
    CollectPlan,
    MeasureSettings,
    Network,
    Outcome,
    Scheduler,
    SearchListener,
    SearchSettings,
    Task,
)
from tvm_gnn_cost.schedulers.workloads import expand_groups
from tvm_gnn_cost.training.checkpoint import DEFAULT_AUTO_SCHEDULER, checkpoint_named


class AutoScheduler:
    """A :class:`~tvm_gnn_cost.schedulers.scheduler.Scheduler`, whose docstrings describe the methods."""

    name = "auto-scheduler"
    checkpoint = DEFAULT_AUTO_SCHEDULER
    packages: tuple[str, ...] = ("tvm-gnn-cost", "torch", "xgboost")
    records_file = RECORDS

    def versions(self) -> dict[str, str]:
        return {"tvm": tvm.__version__}

    def expand(self, names: Iterable[str]) -> tuple[str, ...]:
        return expand_groups(names, TRAINING, KINDS, HELD_OUT)

    def target(self, hardware: str = "") -> Target:
        return local_target(hardware)

    def network(self, name: str) -> Network:
        return load_network(name)

    def tasks(self, network: Network, target: Target) -> list[Task]:
        return extract_tasks(network, target)

    def tasks_of_workload(self, name: str, target: Target) -> list[Task]:
        return tasks_of_workload(name, target)

    def untuned(self, task: Task) -> Any:
        return untuned(task)

    def sample(self, task: Task, target: Target, count: int, seed: int) -> list[Any]:
        return sample_states(task.workload, count, seed)

    def measure(
        self, groups: Sequence[tuple[Task, Sequence[Any]]], target: Target, settings: MeasureSettings
    ) -> Iterator[tuple[Task, list[Outcome]]]:
        return measure_states(groups, settings)

    def graphs(self, task: Task, candidates: Sequence[Any], detail: Detail = "statements") -> ProgramGraphs:
        return extract_states(task.workload.compute_dag, candidates, detail=detail, on_error="skip")

    def features(self, task: Task, target: Target, candidates: Sequence[Any]) -> list[npt.NDArray[np.float32]]:
        return per_store_features(task.workload, candidates)

    def boosted_trees(self, seed: int = 0) -> AutoSchedulerTrees:
        return AutoSchedulerTrees(seed)

    def collection(self, folder: Path, plan: CollectPlan, hardware: str) -> TensetCollection:
        check_hardware_name(hardware)
        return TensetCollection(folder, plan, hardware, self.target(hardware))

    def measured(self, folder: Path, hardware: str | None = None, jobs: int | None = None) -> RecordFolder:
        return RecordFolder(folder, hardware, jobs)

    def cost_model(self, name: str, seed: int, tasks: int, batch: int) -> Any:
        if name == "random":
            return auto_scheduler.RandomModel()
        if name == "xgb":
            # It starts to rank after one batch of every task.
            return auto_scheduler.XGBModel(num_warmup_sample=tasks * batch, verbose_eval=0)
        return GNNCostModel(checkpoint_named(name))

    def batch_size(self, tasks: int, trials: int, batch: int) -> int:
        if trials < tasks:
            raise InputError(f"there are {tasks} tasks; --trials {trials} is less than one each")
        return min(batch, trials // tasks)

    def measure_untuned(self, tasks: Sequence[Task], target: Target, work_dir: Path) -> list[Outcome]:
        states = [untuned(task) for task in tasks]
        groups = [(task, [state]) for task, state in zip(tasks, states, strict=True)]
        # A program before any schedule can be a hundred times slower than a tuned one.
        measured = self.measure(groups, target, MeasureSettings(timeout_s=120))
        outcomes = [outcome for _, (outcome,) in measured]
        save_untuned(tasks, states, outcomes, work_dir)
        return outcomes

    def latencies(self, tasks: Sequence[Task], work_dir: Path) -> list[list[float]]:
        return latencies(tasks, work_dir)

    def search(
        self,
        tasks: Sequence[Task],
        model: Any,
        work_dir: Path,
        settings: SearchSettings,
        on: SearchListener,
    ) -> None:
        search(tasks, model, work_dir, settings, on)

    def compile(
        self, network: Network, target: Target, work_dir: Path | None = None, tuned: Sequence[Task] = ()
    ) -> CompiledNetwork:
        records = None if work_dir is None else schedules(tuned, work_dir)
        # TVM's passes and code generators raise errors of any type.
        try:
            return CompiledNetwork(network, target, records)
        except Exception as error:
            raise WorkError(f"TVM cannot compile {network.name}: {last_line(error)}") from error


#: mypy checks here that the protocol is implemented.
SCHEDULER: Scheduler = AutoScheduler()
