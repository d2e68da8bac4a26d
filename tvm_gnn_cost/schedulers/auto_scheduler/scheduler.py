"""Implements the protocols of ``schedulers/scheduler.py`` for ``auto_scheduler``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import auto_scheduler
from tvm.auto_scheduler.cost_model.cost_model import CostModel
from tvm.auto_scheduler.measure import MeasureInput
from tvm.target import Target

from tvm_gnn_cost.datasets.records import is_database, last_line
from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.measuring.machine import Tracker
from tvm_gnn_cost.networks.catalogue import expand_groups
from tvm_gnn_cost.schedulers.auto_scheduler.builder import Program, build_and_export
from tvm_gnn_cost.schedulers.auto_scheduler.collection import TensetCollection, check_hardware_name
from tvm_gnn_cost.schedulers.auto_scheduler.compile import CompiledNetwork, LoadedNetwork, load_library
from tvm_gnn_cost.schedulers.auto_scheduler.cost_model import GNNCostModel
from tvm_gnn_cost.schedulers.auto_scheduler.folder import RecordFolder
from tvm_gnn_cost.schedulers.auto_scheduler.measure import measure_states
from tvm_gnn_cost.schedulers.auto_scheduler.networks import (
    HELD_OUT,
    TRAINING,
    check_workload,
    extract_tasks,
    load_network,
    tasks_of_workload,
)
from tvm_gnn_cost.schedulers.auto_scheduler.operators import KINDS
from tvm_gnn_cost.schedulers.auto_scheduler.sampling import sample_states, steps_of, untuned
from tvm_gnn_cost.schedulers.auto_scheduler.search import search
from tvm_gnn_cost.schedulers.auto_scheduler.target import local_target, target_of
from tvm_gnn_cost.schedulers.auto_scheduler.verification import TaskVerifier, dtypes_of, faults
from tvm_gnn_cost.schedulers.auto_scheduler.work_dir import (
    RECORDS,
    append_records,
    best,
    latencies,
    pairs,
    save_untuned,
    schedules,
    strike,
    unmeasured,
)
from tvm_gnn_cost.schedulers.build_pool import BuildPool
from tvm_gnn_cost.schedulers.database.folder import DatabaseFolder, check_no_hardware
from tvm_gnn_cost.schedulers.scheduler import (
    CollectPlan,
    Machine,
    MeasuredFolder,
    MeasureSettings,
    Network,
    Outcome,
    Scheduler,
    SearchListener,
    SearchSettings,
    Space,
    Task,
)


class AutoScheduler:
    """A :class:`~tvm_gnn_cost.schedulers.scheduler.Scheduler`, whose docstrings describe the methods."""

    name = "auto-scheduler"
    records_file = RECORDS
    run_script = Path(__file__).with_name("run.py")

    @cached_property
    def build_pool(self) -> BuildPool[Program]:
        """The worker processes that build all programs; started when the first one is built."""
        return BuildPool(build_and_export)

    @cached_property
    def verifier(self) -> TaskVerifier:
        """Knows what the programs of each task are compared with."""
        return TaskVerifier(self.build_pool)

    def versions(self) -> dict[str, str]:
        return {name: version(name) for name in ("tvm-gnn-cost", "torch", "xgboost")} | {"tvm": tvm.__version__}

    def expand(self, names: Iterable[str]) -> tuple[str, ...]:
        return expand_groups(names, TRAINING, KINDS, HELD_OUT)

    def target(self, hardware: str = "", text: str = "") -> Target:
        if hardware:
            check_hardware_name(hardware)
        return target_of(text, hardware) if text else local_target(hardware)

    def network(
        self,
        source: Any,
        inputs: Any = None,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        trusted: bool = False,
    ) -> Network:
        return load_network(source, inputs, shapes, trusted)

    def tasks(self, network: Network, target: Target) -> list[Task]:
        self.build_pool.start()
        return extract_tasks(network, target)

    def check_workload(self, name: str) -> None:
        check_workload(name)

    def check_space(self, space: Space) -> None:
        if space != "package":
            raise InputError("auto_scheduler has a single design space; leave out space (--space)")

    def tasks_of_workload(self, name: str, target: Target, space: Space = "package") -> list[Task]:
        return tasks_of_workload(name, target)

    def flops(self, task: Task) -> float:
        # Negative where TVM cannot count them, as in a pooling.
        return max(0.0, float(task.workload.compute_dag.flop_ct))

    def traffic(self, task: Task) -> float:
        tensors = task.workload.compute_dag.tensors
        return float(sum(math.prod(map(int, each.shape)) * tvm.DataType(each.dtype).bits // 8 for each in tensors))

    def sample(self, task: Task, target: Target, count: int, seed: int) -> list[Any]:
        return sample_states(task.workload, count, seed)

    def measure(
        self, groups: Sequence[tuple[Task, Sequence[Any]]], target: Target, settings: MeasureSettings
    ) -> Iterator[tuple[Task, list[Outcome]]]:
        return measure_states(groups, settings, self.build_pool, self.verifier)

    def faults(self, candidates: Sequence[tuple[Task, Any]], target: Target) -> list[str]:
        inputs = [MeasureInput(task.workload, state) for task, state in candidates]
        return faults(self.build_pool, inputs, self.verifier.local_checks_of([task.workload for task, _ in candidates]))

    def describe(self, task: Task, candidate: Any) -> str:
        return steps_of(task.workload, candidate)

    def dtypes(self, task: Task) -> Sequence[str]:
        return dtypes_of(task.workload)

    def collection(
        self, folder: Path, plan: CollectPlan, hardware: str, target: Target, machine: Mapping[str, Any]
    ) -> TensetCollection:
        check_hardware_name(hardware)
        return TensetCollection(folder, plan, hardware, target, machine)

    def measured(
        self, folder: Path, hardware: str | None = None, jobs: int | None = None, cluster: str = ""
    ) -> MeasuredFolder:
        if not is_database(folder):
            return RecordFolder(folder, hardware, jobs, cluster)
        check_no_hardware(folder, hardware)
        return DatabaseFolder(folder, jobs, partial(import_module, "tvm.tir.tensor_intrin"), cluster)

    def cost_model(self, model: Any, seed: int, tasks: int, batch_size: int) -> Any:
        if isinstance(model, CostModel):
            return model
        if model == "random":
            return auto_scheduler.RandomModel()
        if model == "xgb":
            # It starts to rank after one batch of every task.
            return auto_scheduler.XGBModel(num_warmup_sample=tasks * batch_size, verbose_eval=0)
        if model == "mlp":
            raise InputError("auto_scheduler has no cost model 'mlp'; choose gnn, xgb or random")
        return GNNCostModel(model)

    def score(self, model: Any, task: Task, target: Target, candidates: Sequence[Any]) -> npt.NDArray[np.float64]:
        return np.asarray(model.predict(task.workload, candidates), np.float64)

    def learn(
        self, model: Any, task: Task, target: Target, candidates: Sequence[Any], outcomes: Sequence[Outcome]
    ) -> None:
        model.update(*pairs(task, candidates, outcomes))

    def learn_records(self, model: Any, tasks: Sequence[Task], work_dir: Path) -> None:
        # A random model has nothing to learn.
        if hasattr(model, "update_from_file"):
            model.update_from_file(str(work_dir / RECORDS))

    def record(
        self, measured: Sequence[tuple[Task, Sequence[Any], Sequence[Outcome]]], target: Target, work_dir: Path
    ) -> None:
        for task, candidates, outcomes in measured:
            append_records(work_dir / RECORDS, *pairs(task, candidates, outcomes))

    def measure_untuned(
        self, tasks: Sequence[Task], target: Target, work_dir: Path, tracker: Tracker | None = None
    ) -> list[Outcome]:
        states = [untuned(task) for task in tasks]
        groups = [(task, [state]) for task, state in zip(tasks, states, strict=True)]
        # A program before any schedule can be a hundred times slower than a tuned one.
        settings = MeasureSettings(repeats=1, turns=1, timeout_s=120, tracker=tracker)
        measured = measure_states(groups, settings, self.build_pool)
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
        search(tasks, model, self.verifier, work_dir, settings, on)

    def best(self, tasks: Sequence[Task], work_dir: Path) -> list[Any]:
        return best(tasks, work_dir)

    def strike(self, task: Task, candidate: Any, work_dir: Path) -> None:
        strike(task, candidate, work_dir)

    def compile(
        self,
        network: Network,
        target: Target,
        work_dir: Path | None = None,
        tuned: Sequence[Task] = (),
        chosen: Sequence[tuple[Task, Any]] = (),
    ) -> CompiledNetwork:
        records = None if work_dir is None else schedules(tuned, work_dir) + [unmeasured(*pair) for pair in chosen]
        # TVM's passes and code generators raise errors of any type.
        try:
            return CompiledNetwork(network, target, records)
        except Exception as error:
            raise WorkError(f"TVM cannot compile {network.name}: {last_line(error)}") from error

    def load(self, path: Path, machine: Machine | None = None) -> LoadedNetwork:
        return load_library(path, machine)


#: mypy checks here that the protocol is implemented.
SCHEDULER: Scheduler = AutoScheduler()
