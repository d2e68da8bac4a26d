"""Collects measured programs: samples each task's design space, builds and runs the samples; talks to TVM.

A collection is a folder with a MetaSchedule database (``database_workload.json``,
``database_tuning_record.json``) that every TVM tool reads, and beside it what that format has no room for:
``tasks.jsonl`` (each task, the workloads it occurs in and its weight there), ``measurements.jsonl`` (a line a
record: how its program was sampled and why it failed, if it did) and ``card.json`` (machine, date, settings).
"""

from __future__ import annotations

import datetime
import json
import shutil
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import tvm
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.datasets.meta_schedule import FAILED_RUN_SECS
from tvm_gnn_cost.datasets.records import CollectProgress, drop_broken_last_line
from tvm_gnn_cost.measuring.builder import PooledBuilder
from tvm_gnn_cost.measuring.local import local_runner
from tvm_gnn_cost.measuring.machine import describe_machine
from tvm_gnn_cost.measuring.preload import import_tensor_intrin
from tvm_gnn_cost.networks.relax import extract_tasks, load_network


@dataclass(frozen=True)
class Plan:
    """What to collect.

    Attributes:
        workloads: Names in the catalogue.
        random: Random samples of the design space, a task.
        guided: Samples near the best ones measured so far, a task.
        seed: The same seed samples the same random programs.
        repeats: Times each program is measured.
        min_repeat_ms: The least duration of one repeat; short programs are run many times within it.
        tasks_at_once: Tasks whose programs are built together, so that no core waits for the last one of each task.
    """

    workloads: tuple[str, ...]
    random: int = 12
    guided: int = 8
    seed: int = 0
    repeats: int = 3
    min_repeat_ms: int = 30
    tasks_at_once: int = 8


@dataclass
class Task:
    """One task and where it occurs."""

    hash: str
    name: str
    mod: tvm.IRModule
    weights: dict[str, int] = field(default_factory=dict)


def collect(plan: Plan, folder: Path, progress: CollectProgress) -> None:
    """Measures what is still missing in ``folder``; call it again after an interruption to go on.

    Raises:
        ValueError: a workload is unknown, or the folder holds a collection of another target.
    """
    folder.mkdir(parents=True, exist_ok=True)
    import_tensor_intrin()
    target = load_target(folder)
    for name in ("database_tuning_record.json", "measurements.jsonl"):
        drop_broken_last_line(folder / name)
    _equalise(folder / "database_tuning_record.json", folder / "measurements.jsonl")
    database = ms.database.JSONDatabase(work_dir=str(folder))
    _write_card(folder, plan, target)
    tasks = _find_tasks(plan, target, folder, progress)
    counts = _count_records(folder)
    collector = _Collector(plan, target, database, folder, progress)
    waiting = []
    for task in tasks:
        have = counts.get(task.hash, {})
        if have.get("random", 0) >= plan.random and have.get("guided", 0) >= plan.guided:
            progress.finished(task.name)
        else:
            waiting.append(task)
    for start in range(0, len(waiting), plan.tasks_at_once):
        chunk = waiting[start : start + plan.tasks_at_once]
        for phase in ("random", "guided"):
            wanted = plan.random if phase == "random" else plan.guided
            collector.measure(
                phase, [(task, max(0, wanted - counts.get(task.hash, {}).get(phase, 0))) for task in chunk]
            )
        for task in chunk:
            progress.finished(task.name)


def load_target(folder: Path) -> tvm.target.Target:
    """The target of this machine, which must be that of the collection in ``folder`` if there is one.

    Raises:
        ValueError: it is not.
    """
    from tvm_gnn_cost.networks.relax import local_target

    target = local_target()
    card = folder / "card.json"
    if card.exists():
        known = json.loads(card.read_text())["target"]
        if known != json.loads(str(target)):
            raise ValueError(
                f"{card}: the collection was measured for target {json.dumps(known)}, and this machine is "
                f"{target}; latencies of different machines do not belong together, choose another folder"
            )
    return target


class _Collector:
    """Samples, builds, runs and records the programs of a few tasks at a time."""

    def __init__(
        self, plan: Plan, target: tvm.target.Target, database: ms.Database, folder: Path, progress: CollectProgress
    ) -> None:
        self.plan, self.target, self.database, self.progress = plan, target, database, progress
        self.sidecar = folder / "measurements.jsonl"
        self.builder = PooledBuilder()
        self.runner = local_runner(plan.repeats, plan.min_repeat_ms)

    def measure(self, phase: str, wanted: Sequence[tuple[Task, int]]) -> None:
        """Measures the given number of new programs of each task."""
        # One guide for all of the tasks: XGBoost's training costs seconds whatever the amount of data.
        guide = _Guide(self.database, self.target, [task for task, _ in wanted]) if phase == "guided" else None
        candidates: list[tuple[Task, Any]] = []
        for task, count in wanted:
            if count > 0:
                found = guide.sample(task, count) if guide else _sample_random(task, self.target, count, self.plan.seed)
                candidates += [(task, candidate) for candidate in found]
        if not candidates:
            return
        built = self.builder.build([ms.builder.BuilderInput(c.sch.mod, self.target) for _, c in candidates])
        by_task: dict[str, list[tuple[Any, Any]]] = {}
        for (task, candidate), result in zip(candidates, built, strict=True):
            by_task.setdefault(task.hash, []).append((candidate, result))
        for task in {task.hash: task for task, _ in candidates}.values():
            self._run(phase, task, by_task[task.hash])

    def _run(self, phase: str, task: Task, built: Sequence[tuple[Any, Any]]) -> None:
        inputs = [
            ms.runner.RunnerInput(result.artifact_path, "cpu", candidate.args_info)
            for candidate, result in built
            if result.error_msg is None
        ]
        ran = iter(self.runner.run(inputs))
        workload = self.database.commit_workload(task.mod)
        failed = 0
        for candidate, build_result in built:
            error, seconds = build_result.error_msg, None
            if error is None:
                result = next(ran).result()
                error, seconds = result.error_msg, result.run_secs
                shutil.rmtree(Path(build_result.artifact_path).parent, ignore_errors=True)
            failed += error is not None
            record = ms.database.TuningRecord(
                candidate.sch.trace, workload, seconds or [FAILED_RUN_SECS], self.target, candidate.args_info
            )
            self.database.commit_tuning_record(record)
            kind = None if error is None else _kind_of_failure(error)
            line = {"task": task.hash, "phase": phase, "failure": kind, "message": error and error[-400:]}
            with self.sidecar.open("a") as file:
                file.write(json.dumps(line) + "\n")
        self.progress.measured(len(built) - failed, failed)


def _kind_of_failure(message: str) -> str:
    where = "build" if "LocalBuilder" in message else "run"
    return f"{where}-timeout" if "Timeout" in message else f"{where}-error"


def _context(task: Task, target: tvm.target.Target, strategy: Any, seed: int) -> ms.TuneContext:
    return ms.TuneContext(
        task.mod,
        target=target,
        space_generator="post-order-apply",
        search_strategy=strategy,
        task_name=task.name,
        rand_state=1 + (int(task.hash, 16) + seed) % (2**30),
    )


def _sample_random(task: Task, target: tvm.target.Target, count: int, seed: int) -> list[Any]:
    """Distinct random traces of the task's design space; a small space may have fewer than asked for."""
    context = _context(task, target, "replay-trace", seed)
    context.pre_tuning(8 * count, 2 * count)
    distinct: dict[str, Any] = {}
    for _ in range(4):
        for candidate in context.generate_measure_candidates() or []:
            distinct.setdefault(ms.utils.shash2hex(candidate.sch.mod), candidate)
        if len(distinct) >= count:
            break
    context.post_tuning()
    return list(distinct.values())[:count]


class _Guide:
    """Mutates the best measured programs of a task and keeps what XGBoost ranks first."""

    def __init__(self, database: ms.Database, target: tvm.target.Target, tasks: Sequence[Task]) -> None:
        self.database, self.target = database, target
        self.model = ms.cost_model.XGBModel(num_warmup_samples=1, early_stopping_rounds=20)
        self.records: dict[str, list[Any]] = {}
        wanted = {task.hash for task in tasks}
        for record in database.get_all_tuning_records():
            key = ms.utils.shash2hex(record.workload.mod)
            if key in wanted:
                self.records.setdefault(key, []).append(record)
        for task in tasks:
            # update() trains once the data has grown by a fifth of this: only with the last task's.
            self.model.last_train_size = 0 if task is tasks[-1] else 2**40
            self._learn(task)

    def _learn(self, task: Task) -> None:
        records = self.records.get(task.hash, [])
        if records:
            context = _context(task, self.target, "replay-trace", 0)
            candidates = [record.as_measure_candidate() for record in records]
            results = [ms.runner.RunnerResult(record.run_secs, None) for record in records]
            self.model.update(context, candidates, results)

    def sample(self, task: Task, count: int) -> list[Any]:
        """Up to ``count`` new programs near the best ones of the task."""
        strategy = ms.search_strategy.EvolutionarySearch(
            population_size=4 * count, init_measured_ratio=0.4, init_min_unmeasured=1, genetic_num_iters=2
        )
        context = _context(task, self.target, strategy, len(self.records.get(task.hash, [])))
        context.pre_tuning(count, count, database=self.database, cost_model=self.model)
        found = list(context.generate_measure_candidates() or [])
        context.post_tuning()
        return found


def _find_tasks(plan: Plan, target: tvm.target.Target, folder: Path, progress: CollectProgress) -> list[Task]:
    """The distinct tasks of the plan's workloads; written to ``tasks.jsonl`` together with those known before."""
    path = folder / "tasks.jsonl"
    known: dict[str, dict[str, Any]] = {}
    if path.exists():
        known = {entry["hash"]: entry for entry in map(json.loads, path.read_text().splitlines())}
    by_workload: list[list[Task]] = []
    tasks: dict[str, Task] = {}
    for name in plan.workloads:
        new: list[Task] = []
        for extracted in extract_tasks(load_network(name).mod, target):
            mod = extracted.dispatched[0]
            key = ms.utils.shash2hex(mod)
            if key not in tasks:
                tasks[key] = Task(key, extracted.task_name, mod, dict(known.get(key, {}).get("weights", {})))
                new.append(tasks[key])
            tasks[key].weights[name] = int(extracted.weight)
        by_workload.append(new)
        progress.found(name, len(new))
    for task in tasks.values():
        known[task.hash] = {"hash": task.hash, "name": task.name, "weights": task.weights}
    path.write_text("".join(json.dumps(entry) + "\n" for entry in known.values()))
    # Workload by workload in turn, so that a collection that is cut short has some of everything.
    return [group[i] for i in range(max(map(len, by_workload), default=0)) for group in by_workload if i < len(group)]


def _count_records(folder: Path) -> dict[str, dict[str, int]]:
    counts: dict[str, dict[str, int]] = {}
    for line in _lines(folder / "measurements.jsonl"):
        entry = json.loads(line)
        phases = counts.setdefault(entry["task"], {})
        phases[entry["phase"]] = phases.get(entry["phase"], 0) + 1
    return counts


def _write_card(folder: Path, plan: Plan, target: tvm.target.Target) -> None:
    path = folder / "card.json"
    card = json.loads(path.read_text()) if path.exists() else {"runs": []}
    card["target"] = json.loads(str(target))
    card["machine"] = describe_machine()
    card["tvm"] = tvm.__version__
    run = json.loads(json.dumps({"date": datetime.date.today().isoformat(), **asdict(plan)}))
    if run not in card["runs"]:
        card["runs"].append(run)
    path.write_text(json.dumps(card, indent=1) + "\n")


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []


def _equalise(records: Path, sidecar: Path) -> None:
    """Both files have a line a record; a kill between the two writes leaves one of them longer."""
    lines = _lines(records), _lines(sidecar)
    shorter = min(map(len, lines))
    for path, content in zip((records, sidecar), lines, strict=True):
        if len(content) > shorter:
            path.write_text("".join(line + "\n" for line in content[:shorter]))
