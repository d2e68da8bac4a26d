"""Collects measured programs of Ansor's tasks, in TenSet's layout; talks to a TVM up to 0.19.

Beside the layout, ``<hardware>.card.json`` says what machine, when and how.
"""

from __future__ import annotations

import datetime
import json
import pickle
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tvm import auto_scheduler
from tvm.auto_scheduler.measure import MeasureInput
from tvm.auto_scheduler.measure_record import load_record_from_string
from tvm.target import Target

from tvm_gnn_cost.datasets.records import CollectProgress, Problem, drop_broken_last_line, last_line
from tvm_gnn_cost.datasets.tenset import load_pickle, parse_record, record_lines
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
        ValueError: a workload is unknown, the hardware's name is no folder's, or its records are of another machine or
            of one that no card names.
    """
    if not re.fullmatch(r"[\w.-]+", hardware) or hardware in (".", ".."):
        raise ValueError(f"--hardware '{hardware}' cannot name a folder; use letters, digits and . _ - alone")
    # As in TenSet: the target names the machine, so that its measurements are never taken for another's.
    target = local_target(hardware)
    card = _card(folder, hardware, plan, target)
    tasks: dict[str, auto_scheduler.SearchTask] = {}
    workloads = []
    for name in plan.workloads:
        found, weights = tasks_of_workload(name, target)
        workloads.append((name, found, weights))
        new = [task for task in found if str(task.workload_key) not in tasks]
        tasks |= {str(task.workload_key): task for task in new}
        progress.found(name, len(new))
    # Nothing is written before all of it is known to be right.
    folder.mkdir(parents=True, exist_ok=True)
    _card_path(folder, hardware).write_text(json.dumps(card, indent=1) + "\n")
    for name, found, weights in workloads:
        _save_tasks(folder, name, found, weights)
    for task in tasks.values():
        path = folder / "measure_records" / hardware / _file_name(task, ".json")
        path.parent.mkdir(parents=True, exist_ok=True)
        drop_broken_last_line(path)
        _fill(task, path, plan, progress)
        progress.finished(str(task.desc or task.workload_key))


def _fill(task: auto_scheduler.SearchTask, path: Path, plan: Plan, progress: CollectProgress) -> None:
    """Measures what the task lacks: random samples first, guided ones when those are there."""
    there, problems = _read_records(path)
    for problem in problems:
        progress.note(f"left out: {problem}")
    for wanted in (plan.random, plan.random + plan.guided):
        missing = wanted - len(there)
        if missing <= 0:
            continue
        guide = None
        if wanted > plan.random and any(result.error_no == 0 for _, result in there.values()):
            guide = auto_scheduler.XGBModel(num_warmup_sample=1, verbose_eval=0, seed=plan.seed + 1)
            guide.update(*zip(*there.values(), strict=True))
        states = _sample(task, missing, plan.seed + len(there), guide, set(there))
        if not states:
            continue  # the task's sketches have no more different programs of this kind
        inputs = [MeasureInput(task, state) for state in states]
        built = auto_scheduler.LocalBuilder().build(inputs, 0)
        runner = auto_scheduler.LocalRunner(
            timeout=20, number=1, repeat=plan.repeats, min_repeat_ms=plan.min_repeat_ms, enable_cpu_cache_flush=False
        )
        with machine_to_itself():
            ran = runner.run(inputs, built, 0)
        auto_scheduler.save_records(str(path), inputs, ran)
        there, _ = _read_records(path)
        failed = sum(one.error_no != 0 for one in ran)
        progress.measured(len(ran) - failed, failed)


def _read_records(path: Path) -> tuple[dict[str, tuple[Any, Any]], list[Problem]]:
    """What was measured of a task, input and result by the program's steps as JSON, and the lines that are none."""
    found: dict[str, tuple[Any, Any]] = {}
    problems: list[Problem] = []
    for line in record_lines(path) if path.exists() else ():
        try:
            parse_record(line)
            found[json.dumps(json.loads(line.text)["i"][1])] = load_record_from_string(line.text)
        # Beside what parse_record raises, whatever TVM's readers do.
        except Exception as error:
            problems.append(Problem(line.file, line.line, last_line(error)))
    return found, problems


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


def _card_path(folder: Path, hardware: str) -> Path:
    return folder / f"{hardware}.card.json"


def _card(folder: Path, hardware: str, plan: Plan, target: Target) -> dict[str, Any]:
    """Says how the records were measured, those that are there too.

    Raises:
        ValueError: those that are there were measured on another machine, or there is no word on where.
    """
    path, records = _card_path(folder, hardware), folder / "measure_records" / hardware
    machine = describe_machine()
    workloads = list(plan.workloads)
    if path.exists():
        try:
            card = json.loads(path.read_text())
            processor, measured_for = card["machine"]["processor"], card["target"]
            workloads = list(dict.fromkeys([*card["settings"]["workloads"], *workloads]))
        except (ValueError, KeyError, TypeError) as error:
            raise ValueError(f"{path} is no card of a collection ({error!r}); choose another --hardware") from error
        if (processor, measured_for) != (machine["processor"], str(target)):
            raise ValueError(
                f"{path}: {hardware} was measured on {processor} for {measured_for}, and this is "
                f"{machine['processor']} with {target}; latencies of different machines do not belong together, "
                "choose another --hardware"
            )
    elif records.is_dir() and any(records.iterdir()):
        raise ValueError(
            f"{records} holds records and {path.name} does not say of what machine; latencies of different machines "
            "do not belong together, choose another --hardware"
        )
    return {
        "machine": machine,
        "target": str(target),
        "date": datetime.date.today().isoformat(),
        "settings": asdict(plan) | {"workloads": workloads},
    }
