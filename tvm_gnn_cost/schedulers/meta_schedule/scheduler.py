"""Implements the protocols of ``schedulers/scheduler.py`` for MetaSchedule."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, get_args

import numpy as np
import numpy.typing as npt
import tvm
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.analysis import estimate_tir_flops

from tvm_gnn_cost.datasets.records import RECORDS, last_line
from tvm_gnn_cost.datasets.split import TEST_NETWORKS
from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.importing.source import check_source
from tvm_gnn_cost.lowering.alternatives import mixed
from tvm_gnn_cost.measuring.machine import Tracker
from tvm_gnn_cost.networks.catalogue import TRAINING, expand_groups, is_workload
from tvm_gnn_cost.networks.operators import KINDS
from tvm_gnn_cost.schedulers.build_pool import BuildPool
from tvm_gnn_cost.schedulers.database.folder import DatabaseFolder, check_no_hardware
from tvm_gnn_cost.schedulers.meta_schedule.builder import Program, build_and_export
from tvm_gnn_cost.schedulers.meta_schedule.collection import DatabaseCollection
from tvm_gnn_cost.schedulers.meta_schedule.compile import CompiledNetwork, LoadedNetwork, load_library
from tvm_gnn_cost.schedulers.meta_schedule.cost_model import GNNCostModel
from tvm_gnn_cost.schedulers.meta_schedule.networks import load_network, tasks_of, tasks_with_tvm
from tvm_gnn_cost.schedulers.meta_schedule.preload import import_tensor_intrin
from tvm_gnn_cost.schedulers.meta_schedule.runner import run_built
from tvm_gnn_cost.schedulers.meta_schedule.sampling import sample_random, tune_context, untuned
from tvm_gnn_cost.schedulers.meta_schedule.search import search
from tvm_gnn_cost.schedulers.meta_schedule.target import local_target, target_of
from tvm_gnn_cost.schedulers.meta_schedule.verification import Check, TaskVerifier, parameters_of, verify
from tvm_gnn_cost.schedulers.meta_schedule.work_dir import (
    commit,
    fastest,
    latency,
    open_database,
    records_by_task,
    strike,
)
from tvm_gnn_cost.schedulers.mlp_baseline import mlp_search_model
from tvm_gnn_cost.schedulers.scheduler import (
    CollectPlan,
    Machine,
    MeasureSettings,
    Network,
    Outcome,
    Scheduler,
    SearchListener,
    SearchSettings,
    Space,
    Task,
)
from tvm_gnn_cost.schedulers.turn_runner import turn_runner


class MetaSchedule:
    """A :class:`~tvm_gnn_cost.schedulers.scheduler.Scheduler`, whose docstrings describe the methods."""

    name = "meta-schedule"
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
        return {name: version(name) for name in ("tvm-gnn-cost", "apache-tvm", "apache-tvm-ffi", "torch", "xgboost")}

    def expand(self, names: Iterable[str]) -> tuple[str, ...]:
        return expand_groups(names, TRAINING, KINDS, TEST_NETWORKS[self.name])

    def target(self, hardware: str = "", text: str = "") -> tvm.target.Target:
        return target_of(text) if text else local_target()

    def network(
        self,
        source: Any,
        inputs: Any = None,
        shapes: Mapping[str, tuple[int, ...]] | None = None,
        trusted: bool = False,
    ) -> Network:
        return load_network(source, inputs, shapes, trusted)

    def tasks(self, network: Network, target: tvm.target.Target) -> list[Task]:
        self._prepare()
        return tasks_of(network, target)

    def _prepare(self) -> None:
        """Starts the workers, which takes seconds, and imports what the design spaces need."""
        self.build_pool.start()
        import_tensor_intrin()

    def check_workload(self, name: str) -> None:
        if not is_workload(name):
            check_source(name)

    def check_space(self, space: Space) -> None:
        if space not in get_args(Space):
            raise InputError(f"the design space is {' or '.join(get_args(Space))}, not {space}")

    def tasks_of_workload(self, name: str, target: tvm.target.Target, space: Space = "package") -> list[Task]:
        if space == "tvm":
            self._prepare()
            return tasks_with_tvm(name, target)
        # Data has the latencies of cold weights, whatever network a task is taken from.
        return [replace(task, is_warm=False) for task in self.tasks(load_network(name), target)]

    def flops(self, task: Task) -> float:
        return float(estimate_tir_flops(task.workload.dispatched[0]))

    def traffic(self, task: Task) -> float:
        about = parameters_of(task)
        # A table is not read beyond what the iterations look up.
        read = [(min(math.prod(argument.shape), about.work), argument.dtype) for argument in about.arguments]
        return float(sum(count * tvm.DataType(dtype).itemsize for count, dtype in read))

    def sample(self, task: Task, target: tvm.target.Target, count: int, seed: int) -> list[Any]:
        return sample_random(task, target, count, seed)

    def measure(
        self, groups: Sequence[tuple[Task, Sequence[Any]]], target: tvm.target.Target, settings: MeasureSettings
    ) -> Iterator[tuple[Task, list[Outcome]]]:
        yield from self._measure(groups, target, settings, self.verifier.checks_of([task for task, _ in groups]))

    def _measure(
        self,
        groups: Sequence[tuple[Task, Sequence[Any]]],
        target: tvm.target.Target,
        settings: MeasureSettings,
        checks: Sequence[Check | None],
    ) -> Iterator[tuple[Task, list[Outcome]]]:
        """Builds candidates and compares each with its task's check, if there is one; then runs them."""
        programs = [
            Program(candidate.sch.mod, target, check, settings.space)
            for (_, candidates), check in zip(groups, checks, strict=True)
            for candidate in candidates
        ]
        built = iter(self.build_pool.build(programs))
        batches = [(task, candidates, [next(built) for _ in candidates]) for task, candidates in groups]
        yield from turn_runner(settings).each(
            [
                (task, partial(run_built, candidates, ready, how, parameters_of(task).arguments))
                for task, candidates, ready in batches
                for how in [replace(settings, is_warm=task.is_warm)]
            ]
        )

    def faults(self, candidates: Sequence[tuple[Task, Any]], target: tvm.target.Target) -> list[str]:
        checks = self.verifier.checks_of([task for task, _ in candidates])
        jobs = [(candidate.sch.mod, check) for (_, candidate), check in zip(candidates, checks, strict=True)]
        return [verified.message for verified in self.build_pool.run(verify, jobs)]

    def describe(self, task: Task, candidate: Any) -> str:
        return str(candidate.sch.trace)

    def dtypes(self, task: Task) -> Sequence[str]:
        return parameters_of(task).dtypes

    def collection(
        self, folder: Path, plan: CollectPlan, hardware: str, target: tvm.target.Target, machine: Mapping[str, Any]
    ) -> DatabaseCollection:
        return DatabaseCollection(folder, plan, target, machine)

    def measured(
        self, folder: Path, hardware: str | None = None, jobs: int | None = None, cluster: str = ""
    ) -> DatabaseFolder:
        check_no_hardware(folder, hardware)
        return DatabaseFolder(folder, jobs, import_tensor_intrin, cluster)

    def cost_model(self, model: Any, seed: int, tasks: int, batch_size: int) -> Any:
        if isinstance(model, ms.cost_model.CostModel):
            return model
        if model == "random":
            return ms.cost_model.RandomModel(seed=seed)
        if model == "xgb":
            return ms.cost_model.XGBModel(num_tuning_cores=ms.utils.cpu_count(logical=False))
        if model == "mlp":
            return mlp_search_model(seed)
        return GNNCostModel(model)

    def score(
        self, model: Any, task: Task, target: tvm.target.Target, candidates: Sequence[Any]
    ) -> npt.NDArray[np.float64]:
        context = tune_context(task, target, "replay-trace", seed=0)
        return np.asarray(model.predict(context, candidates), np.float64)

    def learn(
        self,
        model: Any,
        task: Task,
        target: tvm.target.Target,
        candidates: Sequence[Any],
        outcomes: Sequence[Outcome],
    ) -> None:
        results = [
            ms.runner.RunnerResult(outcome.seconds or None, outcome.failure and outcome.message) for outcome in outcomes
        ]
        model.update(tune_context(task, target, "replay-trace", seed=0), candidates, results)

    def learn_records(self, model: Any, tasks: Sequence[Task], work_dir: Path) -> None:
        for task, records in zip(tasks, records_by_task(tasks, open_database(work_dir)), strict=True):
            valid = [record for record in records if latency(record) < float("inf")]
            if valid:
                context = tune_context(task, valid[0].target, "replay-trace", seed=0)
                results = [ms.runner.RunnerResult(record.run_secs, None) for record in valid]
                model.update(context, [record.as_measure_candidate() for record in valid], results)

    def record(
        self,
        measured: Sequence[tuple[Task, Sequence[Any], Sequence[Outcome]]],
        target: tvm.target.Target,
        work_dir: Path,
    ) -> None:
        database = open_database(work_dir)
        for task, candidates, outcomes in measured:
            commit(database, task, candidates, outcomes, target)

    def measure_untuned(
        self, tasks: Sequence[Task], target: tvm.target.Target, work_dir: Path, tracker: Tracker | None = None
    ) -> list[Outcome]:
        # A program before any schedule can be a hundred times slower than a tuned one.
        settings = MeasureSettings(repeats=1, turns=1, timeout_s=60.0, tracker=tracker)
        groups = [(task, [untuned(task)]) for task in tasks]
        measured = self._measure(groups, target, settings, [None] * len(tasks))
        return [outcome for _, (outcome,) in measured]

    def latencies(self, tasks: Sequence[Task], work_dir: Path) -> list[list[float]]:
        by_task = records_by_task(tasks, open_database(work_dir))
        return [[latency(record) for record in records] for records in by_task]

    def best(self, tasks: Sequence[Task], work_dir: Path) -> list[Any]:
        by_task = records_by_task(tasks, open_database(work_dir))
        ran = [[record for record in records if latency(record) < float("inf")] for records in by_task]
        return [records[0].as_measure_candidate() if records else None for records in ran]

    def strike(self, task: Task, candidate: Any, work_dir: Path) -> None:
        strike(task, candidate, work_dir)

    def search(
        self,
        tasks: Sequence[Task],
        model: Any,
        work_dir: Path,
        settings: SearchSettings,
        on: SearchListener,
    ) -> None:
        search(tasks, model, self.verifier, work_dir, settings, on)

    def compile(
        self,
        network: Network,
        target: tvm.target.Target,
        work_dir: Path | None = None,
        tuned: Sequence[Task] = (),
        chosen: Sequence[tuple[Task, Any]] = (),
    ) -> CompiledNetwork:
        schedules, mod = None, network.mod
        if work_dir is not None:
            schedules = fastest(tuned, open_database(work_dir))
            for task, candidate in chosen:
                commit(schedules, task, [candidate], [Outcome((1.0,))], target)
            replacing = {task.key for task in (*tuned, *(task for task, _ in chosen)) if task.instead_of}
            if replacing:
                mod = mixed(mod, network.alternative, replacing)
        # TVM's passes and code generators raise errors of any type.
        try:
            return CompiledNetwork(mod, target, schedules)
        except Exception as error:
            raise WorkError(f"TVM cannot compile {network.name}: {last_line(error)}") from error

    def load(self, path: Path, machine: Machine | None = None) -> LoadedNetwork:
        return load_library(path, machine)


#: mypy checks here that the protocol is implemented.
SCHEDULER: Scheduler = MetaSchedule()
