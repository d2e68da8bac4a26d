"""Collects measured programs of Ansor's tasks, in TenSet's layout; talks to a TVM up to 0.19.

Beside the layout, ``<hardware>.card.json`` says what machine, when and how.
"""

from __future__ import annotations

import datetime
import json
import pickle
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tvm import auto_scheduler
from tvm.auto_scheduler.measure import MeasureInput
from tvm.target import Target

from tvm_gnn_cost.datasets.records import CollectProgress, drop_broken_last_line
from tvm_gnn_cost.datasets.tenset import RecordLine, load_pickle, parse_record
from tvm_gnn_cost.measuring.exclusive import machine_to_itself
from tvm_gnn_cost.measuring.machine import describe_machine
from tvm_gnn_cost.networks.relay import local_target, tasks_of_workload


@dataclass(frozen=True)
class Plan:
    """What to collect.

    Attributes:
        workloads: Names of networks or operators (``networks.relay``).
        random: Random samples of the sketches, a task.
        guided: Samples of an evolutionary search after an XGBoost model has learned from those, a task.
        seed: Of the samples.
        repeats: Times each program is measured.
        min_repeat_ms: The least duration of one repeat; short programs are run many times within it.
    """

    workloads: tuple[str, ...]
    random: int = 16
    guided: int = 16
    seed: int = 0
    repeats: int = 3
    min_repeat_ms: int = 30


def collect_tenset(plan: Plan, folder: Path, hardware: str, progress: CollectProgress) -> None:
    """Measures what is still missing in ``folder``; call it again after an interruption to go on.

    Args:
        plan: What to collect.
        folder: The folder in TenSet's layout; others' tasks and records in it stay.
        hardware: This machine's folder in ``measure_records``.
        progress: Told of every step.

    Raises:
        ValueError: a workload is unknown, or the hardware's records are of another machine.
    """
    # As in TenSet: the target names the machine, so that its measurements are never taken for another's.
    target = local_target(hardware)
    _write_card(folder, hardware, plan, target)
    tasks: dict[str, auto_scheduler.SearchTask] = {}
    for name in plan.workloads:
        found, weights = tasks_of_workload(name, target)
        new = [task for task in found if str(task.workload_key) not in tasks]
        tasks |= {str(task.workload_key): task for task in new}
        _save_tasks(folder, name, found, weights)
        progress.found(name, len(new))
    for task in tasks.values():
        path = folder / "measure_records" / hardware / _file_name(task, ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        drop_broken_last_line(path)
        _fill(task, path, plan, progress)
        progress.finished(str(task.desc or task.workload_key))


def _fill(task: auto_scheduler.SearchTask, path: Path, plan: Plan, progress: CollectProgress) -> None:
    """Measures what the task lacks: random samples first, guided ones when those are there."""
    for wanted in (plan.random, plan.random + plan.guided):
        lines = path.read_text().splitlines() if path.exists() else []
        missing = wanted - len(lines)
        if missing <= 0:
            continue
        known = {json.dumps(json.loads(line)["i"][1]) for line in lines}
        guide = None
        if wanted > plan.random and _any_valid(path, lines):
            guide = auto_scheduler.XGBModel(num_warmup_sample=1, verbose_eval=0, seed=plan.seed + 1)
            guide.update_from_file(str(path))
        states = _sample(task, missing, plan.seed + len(lines), guide, known)
        if not states:
            return  # the task's sketches have no more different programs
        inputs = [MeasureInput(task, state) for state in states]
        built = auto_scheduler.LocalBuilder().build(inputs, 0)
        runner = auto_scheduler.LocalRunner(
            timeout=20, number=1, repeat=plan.repeats, min_repeat_ms=plan.min_repeat_ms, enable_cpu_cache_flush=False
        )
        with machine_to_itself():
            ran = runner.run(inputs, built, 0)
        auto_scheduler.save_records(str(path), inputs, ran)
        failed = sum(one.error_no != 0 for one in ran)
        progress.measured(len(ran) - failed, failed)


def _any_valid(path: Path, lines: Sequence[str]) -> bool:
    return any(not parse_record(RecordLine(path, number, line)).failure for number, line in enumerate(lines, 1))


def _sample(task: auto_scheduler.SearchTask, count: int, seed: int, guide: Any | None, known: set[str]) -> list[Any]:
    """New states of the task, random ones or, with a guide, those that its evolutionary search likes best."""
    parameters = {"sample_init_min_population": max(64, 2 * count), "evolutionary_search_population": 256}
    policy = auto_scheduler.SketchPolicy(
        task, guide or auto_scheduler.RandomModel(), params=parameters, seed=seed, verbose=0
    )
    population = policy.sample_initial_population()
    if guide is None:
        order = np.random.default_rng(seed).permutation(len(population)).tolist()
        states = [population[i] for i in order]
    else:
        states = list(policy.evolutionary_search(population, 2 * count))
    chosen = []
    for state in states:
        entry = json.loads(auto_scheduler.measure_record.dump_record_to_string(MeasureInput(task, state), _NO_RESULT))
        name = json.dumps(entry["i"][1])
        if name not in known:
            known.add(name)
            chosen.append(state)
    return chosen[:count]


_NO_RESULT = auto_scheduler.measure.MeasureResult([0.0], 0, "", 0.0, 0)


def _file_name(task: auto_scheduler.SearchTask, end: str) -> str:
    """TenSet's name of a task's file."""
    text = f"({task.workload_key}, {task.target.kind})"
    return "".join(character for character in text if character not in " '\"") + end


def _save_tasks(folder: Path, name: str, tasks: Sequence[Any], weights: Sequence[int]) -> None:
    """Adds the tasks to ``all_tasks.pkl``, and those of a network to its own pickle."""
    info = folder / "network_info"
    info.mkdir(parents=True, exist_ok=True)
    path = info / "all_tasks.pkl"
    everything = {str(task.workload_key): task for task in (load_pickle(path) if path.exists() else [])}
    everything = {str(task.workload_key): task for task in tasks} | everything
    _write_pickle(path, list(everything.values()))
    if "/" not in name:
        network = f"(({name.replace('-', '_')},[]),llvm).task.pkl"
        _write_pickle(info / network, (list(tasks), list(weights)))


def _write_pickle(path: Path, content: Any) -> None:
    unfinished = path.with_suffix(".tmp")
    unfinished.write_bytes(pickle.dumps(content))
    unfinished.replace(path)


def _write_card(folder: Path, hardware: str, plan: Plan, target: Target) -> None:
    """Says how the records were measured.

    Raises:
        ValueError: those that are there were measured on another machine.
    """
    path = folder / f"{hardware}.card.json"
    machine = describe_machine()
    workloads = list(plan.workloads)
    if path.exists():
        card = json.loads(path.read_text())
        if (card["machine"]["processor"], card["target"]) != (machine["processor"], str(target)):
            raise ValueError(
                f"{path}: {hardware} was measured on {card['machine']['processor']} for {card['target']}, and this is "
                f"{machine['processor']} with {target}; latencies of different machines do not belong together, "
                "choose another --hardware"
            )
        workloads = list(dict.fromkeys([*card["settings"]["workloads"], *workloads]))
    folder.mkdir(parents=True, exist_ok=True)
    card = {
        "machine": machine,
        "target": str(target),
        "date": datetime.date.today().isoformat(),
        "settings": asdict(plan) | {"workloads": workloads},
    }
    path.write_text(json.dumps(card, indent=1) + "\n")
