"""What a new processor costs: accuracy on it against the number of tasks that were measured there.

Runs in either environment, on the measured programs of its scheduler that come with the project. For each processor, a
model learns from the programs of all other processors. On the programs of held-out networks that were measured on the
processor, it is compared with the same model fine-tuned (``train --start``) on some tasks of the processor, with a new
model and TVM's XGBModel that learn from these tasks alone, and with the model of ``accuracy.py``, which learns from all
processors. Finished runs are saved; the same command resumes.
"""

from __future__ import annotations

import argparse
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np

from common import cell, console, parser, result_name, table_of, write_result
from offline import run_offline
from stores import extract_store, measured_on
from trained import (
    Job,
    Rows,
    digest_of,
    one_a_core,
    result_of,
    run_all,
    saved,
    saved_path,
    settings_of,
    train_model,
)
from tvm_gnn_cost import CostModel, GraphStore
from tvm_gnn_cost.datasets.programs import MeasuredPrograms, TaskInfo
from tvm_gnn_cost.datasets.split import Split
from tvm_gnn_cost.evaluation.compare import summarise
from tvm_gnn_cost.graphs.processor import processor_of
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.training.pipeline import VALIDATION_FRACTION, split_programs

#: Scheduler -> processors whose programs of held-out networks were measured.
PROCESSORS = {"meta-schedule": ("cascadelake", "znver4", "znver5"), "auto-scheduler": ("zen4-2core",)}
#: Learns from all other processors.
OTHERS = "other processors"
#: Learns from all processors.
ALL = "all processors"
#: Learn from some tasks of the processor.
MODELS = ("fine-tuned", "new model", "xgb")
_METRICS = {"pairwise_accuracy": "pairwise accuracy", "regret": "regret", "top1": "top-1"}


def processor_name(task: TaskInfo) -> str:
    """LLVM's name of a task's processor; the name of the machine where the target has one, as those of Ansor do."""
    machine = re.search(r"-model=(\S+)", task.target)
    return machine[1] if machine else processor_of(task.target).name


@dataclass(frozen=True)
class Run:
    """A model to train and test.

    Attributes:
        model: :data:`OTHERS` or one of :data:`MODELS`.
        processor: The new processor.
        seed: Of the split, the choice of tasks and the training.
        store: Graph store of the measured programs.
        tasks: Number of tasks of the processor that the model learns from, 0 for :data:`OTHERS`.
        data: The folders that the programs of the store come from.
    """

    model: str
    processor: str
    seed: int
    store: Path
    tasks: int
    data: tuple[Path, ...]


def _parts(run: Run, programs: MeasuredPrograms, held_out: Sequence[str]) -> Split:
    """The programs that a model learns from, is validated on and is tested on."""
    parts = split_programs(programs, held_out, run.seed)
    of_it = np.array([processor_name(task) == run.processor for task in programs.tasks])[programs.task]
    test = parts.test[of_it[parts.test]]
    if run.model == OTHERS:
        return Split(parts.train[~of_it[parts.train]], parts.validation[~of_it[parts.validation]], test)
    rows = np.concatenate([parts.train, parts.validation])
    rows = rows[of_it[rows]]
    # Fewer tasks are a part of more.
    chosen = np.random.default_rng(run.seed).permutation(np.unique(programs.task[rows]))[: run.tasks]
    validation = chosen[:: round(1 / VALIDATION_FRACTION)]

    def of(tasks: Rows) -> Rows:
        return np.sort(rows[np.isin(programs.task[rows], tasks)])

    return Split(of(np.setdiff1d(chosen, validation)), of(validation), test)


def _path(run: Run, held_out: Sequence[str], epochs: int | None, runs: Path) -> Path:
    ours = [] if run.model == "xgb" else [epochs, settings_of("gnn")]
    key = [run.tasks, *ours, digest_of(run.store), *held_out]
    return saved_path(runs, f"{run.model} {run.processor} {run.seed}", key)


def _run(run: Run, held_out: Sequence[str], epochs: int | None, runs: Path) -> tuple[Run, dict[str, Any]]:
    def compute(path: Path) -> dict[str, Any]:
        programs = GraphStore(run.store).load(with_features=run.model == "xgb")
        parts = _parts(run, programs, held_out)
        start = None
        if run.model == "fine-tuned":
            others = _path(replace(run, model=OTHERS, tasks=0), held_out, epochs, runs)
            start = CostModel.load(others.with_suffix(".safetensors")).checkpoint
        name = "xgb" if run.model == "xgb" else "gnn"
        models = train_model(name, programs, parts, run.seed, epochs, path.with_suffix(".fit"), start)
        return result_of(models, programs, parts, held_out, run.data)

    return run, saved(_path(run, held_out, epochs, runs), compute)


def benchmark(arguments: argparse.Namespace, data: Sequence[Path], stores: Path, finished: Path) -> None:
    """Runs what is missing among the ``finished`` runs on ``data``, prints the tables and writes the JSON."""
    held_out, seeds, processors = arguments.held_out, range(arguments.seeds), arguments.processors
    store = extract_store(data, stores, "statements")

    def run_each(models: Sequence[str], tasks: Sequence[int]) -> None:
        runs = [
            Run(model, processor, seed, store, count, tuple(data))
            for count in sorted(tasks, reverse=True)
            for processor in processors
            for model in models
            for seed in seeds
        ]
        calls = [joblib.delayed(_run)(run, held_out, arguments.epochs, finished) for run in runs]
        for run, result in one_a_core(calls, arguments.quick):
            accuracy = result["all"]["pairwise_accuracy"]
            about = f"{run.processor}, {run.model}, seed {run.seed}, {result['train_programs']} programs"
            console.print(f"{about}: pairwise accuracy {accuracy:.3f}", highlight=False)
            results.setdefault((run.processor, run.model, run.tasks), []).append(result)

    results: dict[tuple[str, str, int], list[dict[str, Any]]] = {}
    run_each([OTHERS], [0])
    run_each(MODELS, [4] if arguments.quick else arguments.tasks)
    jobs = [Job("gnn", seed, store, data=tuple(data)) for seed in seeds]
    accuracy = finished.with_name(result_name("accuracy", scheduler().name))
    everything = [result for _, result in run_all(jobs, held_out, arguments.epochs, arguments.quick, accuracy)]
    curves: dict[str, list[dict[str, Any]]] = {}
    for processor in processors:
        ours = {(model, tasks): runs for (other, model, tasks), runs in results.items() if other == processor}
        for part in ours[OTHERS, 0][0]["processors"]:
            curves[part] = [_point(model, runs, part) for (model, _), runs in sorted(ours.items(), key=_place)]
            curves[part].append(_point(ALL, everything, part))
    columns = ("model", "tasks", "programs", *_METRICS.values())
    for part, points in curves.items():
        rows = [
            (one["model"], str(one["tasks"]), str(one["programs"]), *(cell(one["metrics"][key]) for key in _METRICS))
            for one in points
        ]
        console.print(table_of(f"{part}; {len(seeds)} seeds", columns, rows))
    settings = {"seeds": list(seeds), "held_out": list(held_out), "epochs": arguments.epochs, "quick": arguments.quick}
    settings["data_measured_on"] = measured_on(data)
    write_result(arguments.json, result_name("new_processor", scheduler().name), settings, {"parts": curves})


def _place(entry: tuple[tuple[str, int], Any]) -> tuple[int, int]:
    """Place of a model and its number of tasks in a table."""
    (model, tasks), _ = entry
    return (OTHERS, *MODELS).index(model), tasks


def _point(model: str, runs: Sequence[Mapping[str, Any]], part: str) -> dict[str, Any]:
    """A model with the numbers of tasks and programs that it learned from, those of other processors included."""
    return {
        "model": model,
        "tasks": round(statistics.mean(run["train_tasks"] for run in runs)),
        "programs": round(statistics.mean(run["train_programs"] for run in runs)),
        "metrics": summarise([run["processors"][part] for run in runs]),
    }


def main() -> None:
    """Reads the options and runs the benchmark."""
    options = parser(__doc__)
    processors = PROCESSORS[scheduler().name]
    options.add_argument("--processors", nargs="+", choices=processors, default=processors)
    options.add_argument(
        "--tasks", nargs="+", type=int, default=[16, 64, 256], help="numbers of tasks that are measured on it"
    )
    run_offline(options, "new_processor", benchmark)


if __name__ == "__main__":
    main()
