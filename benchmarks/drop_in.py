"""Changes one argument of TVM's own search of a task: its cost model.

Runs in either environment: MetaSchedule's ``tune_tir``, or ``auto_scheduler``'s ``SketchPolicy``, each with TVM's
design space, builder, runner and settings, of tasks of networks that the shipped checkpoints did not learn from. The
cost models are ``GNNCostModel()``, the same without updates or exploration, its trees alone, its network alone,
``XGBModel()``, whose scores are random until it has 100 measurements, the same from its first measurement on, the same
trained on our measured programs, TVM's ``MLPModel`` (MetaSchedule), without and with our programs, and random scores.
Afterwards the fastest programs of a task are compared with NumPy and timed interleaved. Finished searches are saved;
the same command resumes, and adds seeds, tasks and models to the JSON, on whichever machine: all models of a task and
a seed run on one, and what other processors searched stays. With each model, the process of the search and the workers
of MetaSchedule's builder import TVM's tensor intrinsics as with ``GNNCostModel``; otherwise searches lose programs to
the builder's limit of 30 seconds. Nothing else may run on the machine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import tvm

import figures
from common import console, earlier_metrics, parser, result_name, run_saved, shipped_version, table_of, write_result
from search_curves import (
    ABOVE_FASTEST_COLUMNS,
    DROP_IN_BASELINES,
    DROP_IN_COLUMNS,
    OURS,
    best,
    drop_in_rows,
    drop_in_rows_of_tasks,
    improvements,
    relative_curves,
    rows_above_fastest,
    where,
)
from single_tasks import CPU_TASKS, chosen, measure_again
from tvm_gnn_cost import CostModel, GNNCostModel
from tvm_gnn_cost.files import write_text
from tvm_gnn_cost.measuring.machine import describe_machine, machine_to_itself, usable_cores
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.scoring.cost_model import UpdateSettings

if scheduler().name == "auto-scheduler":
    from drop_in_auto_scheduler import BASELINES, search, trees_alone
else:
    from drop_in_meta_schedule import BASELINES, search, trees_alone

#: Number of processes that the fastest programs are measured again in, of which the median counts: in one of thirteen
#: a program took 1.5 times as long in all rounds.
_PROCESSES = 3

#: The largest difference of a program from NumPy, relative to the largest value.
_LARGEST_DIFFERENCE = 1e-4


def with_settings(**settings: Any) -> GNNCostModel:
    """The shipped model with other settings in a search."""
    return GNNCostModel(CostModel.load("gnn", UpdateSettings(**settings)))


#: Name -> makes a cost model from a seed and a folder for what is trained on the programs of the shipped checkpoint.
MODELS: dict[str, Callable[[int, Path], Any]] = {
    OURS: lambda _seed, _folder: GNNCostModel(),
    "GNNCostModel() without updates": lambda _seed, _folder: with_settings(trees=0),
    "its trees alone": lambda _seed, _folder: trees_alone(),
    "its network alone": lambda _seed, _folder: GNNCostModel(
        CostModel(replace(CostModel.load().checkpoint, trees=None))
    ),
    **BASELINES,
    "GNNCostModel() without exploration": lambda _seed, _folder: with_settings(explored=0),
}


def file_name(text: str, suffix: str) -> str:
    """The name of a file of a task and a model.

    >>> file_name("swin: softmax", ".json")
    'swin--softmax.json'
    """
    return "".join(letter if letter.isalnum() else "-" for letter in text) + suffix


def _search_and_save(task: str, model: str, seed: int, arguments: argparse.Namespace, path: Path) -> None:
    # XGBoost models first draw scores from NumPy's global generator.
    np.random.seed(seed)
    with machine_to_itself():
        cost_model = MODELS[model](seed, arguments.runs)
        found = search(chosen(CPU_TASKS, arguments)[task], cost_model, seed, arguments.trials, path.with_suffix(".so"))
    write_text(path, json.dumps(found))


def _measure_again(task: str, libraries: Sequence[Path], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    with machine_to_itself():
        return measure_again(chosen(CPU_TASKS, arguments)[task], libraries, tvm.cpu())


def _in_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a function in another process: TVM keeps what it has compiled, and a program may crash."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def benchmark(arguments: argparse.Namespace, finished: Path) -> None:
    """Runs what is missing in the folder ``finished`` and in the JSON, prints the tables, writes it after each task."""
    # Searches with another checkpoint, and models of the programs that it learned from, are repeated.
    arguments.checkpoint = shipped_version()
    arguments.runs = finished / arguments.checkpoint
    arguments.runs.mkdir(parents=True, exist_ok=True)
    machine = describe_machine()
    arguments.processor = f"{machine['processor']}, {machine['signature']}"
    searched = _in_json(arguments)
    for seed in range(arguments.seeds):
        for task in chosen(CPU_TASKS, arguments):
            models = {key: [run["model"] for run in runs] for key, runs in searched.items() if key[:2] == (task, seed)}
            # Latencies are compared only where all models ran on one machine.
            if not any(set(arguments.models) <= set(saved) for saved in models.values()):
                here = task, seed, arguments.processor
                wanted = list(dict.fromkeys([*models.get(here, []), *arguments.models]))
                searched[here] = _search_all(task, seed, wanted, arguments)
                _write(arguments, searched)
    runs = [run for group in searched.values() for run in group]
    for baseline in (one for one in DROP_IN_BASELINES if any(run["model"] == one for run in runs)):
        console.print(table_of(f"latency / that of {baseline}", DROP_IN_COLUMNS, drop_in_rows(runs, baseline)))
        columns = ("task", *DROP_IN_COLUMNS[1:])
        rows = drop_in_rows_of_tasks(runs, OURS, baseline)
        console.print(table_of(f"latency of {OURS} / that of {baseline}", columns, rows))
    title = "latency / that of the fastest program of all searches of the task on the processor"
    console.print(table_of(title, ABOVE_FASTEST_COLUMNS, rows_above_fastest(runs)))


def _search_all(task: str, seed: int, models: Sequence[str], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The searches of a task with each model, as in the JSON."""
    runs, libraries = [], []
    for model in models:
        # A folder that is moved to another machine has the searches of both.
        path = arguments.runs / file_name(f"{task} {model} {arguments.processor}", f".{arguments.trials}.{seed}.json")
        console.print(f"{task}, {model}, seed {seed}", highlight=False)
        if not path.exists():
            _in_process(_search_and_save, task, model, seed, arguments, path)
        found = json.loads(path.read_text())
        run = {"task": task, "model": model, "seed": seed, "best_s": best(found["points"])}
        run |= {"machine": arguments.processor, "wall_clock_s": found["points"][-1][0]}
        run |= {"phases_s": found["phases_s"], "improvements": improvements(found["points"]), "again": None}
        runs.append(run)
        libraries.append(path.with_suffix(".so"))
    measured = [number for number, library in enumerate(libraries) if library.exists()]
    of_processes = [
        _in_process(_measure_again, task, [libraries[number] for number in measured], arguments)
        for _ in range(1 if arguments.quick else _PROCESSES)
    ]
    for number, rows in zip(measured, zip(*of_processes, strict=True), strict=True):
        # TVM does not compare the programs of a search, and the fastest may compute something else.
        if all(row["difference"] <= _LARGEST_DIFFERENCE for row in rows):
            runs[number]["again"] = sorted(rows, key=lambda row: row["latency_s"])[len(rows) // 2]
        else:
            console.print(f"{models[number]}: left out, its fastest program differs by {rows[0]['difference']:.1g}")
    return runs


def _in_json(arguments: argparse.Namespace) -> dict[tuple[str, int, str], list[dict[str, Any]]]:
    """Task, seed and processor -> searches that the JSON has; none if it has other settings."""
    searched: dict[tuple[str, int, str], list[dict[str, Any]]] = {}
    for run in earlier_metrics(arguments.json, _settings(arguments)).get("runs", ()):
        searched.setdefault(where(run), []).append(run)
    return searched


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    return {"trials": arguments.trials, "threads": usable_cores(), "checkpoint": arguments.checkpoint}


def _write(arguments: argparse.Namespace, searched: Mapping[tuple[str, int, str], Sequence[Mapping[str, Any]]]) -> None:
    runs = [run for group in searched.values() for run in group]
    write_result(arguments.json, result_name("drop_in", scheduler().name), _settings(arguments), {"runs": runs})


def write_figure(result: Mapping[str, Any], root: Path) -> None:
    """Writes the mean curves of a result, latency against trials, to a file of its name in ``docs/images``."""
    curves = relative_curves(result["metrics"]["runs"], "trials")
    path = root / "docs" / "images" / f"{result['benchmark'].replace('_', '-')}.svg"
    figures.write_image(figures.mean_descents(curves, "trials"), path)


def main() -> None:
    """Reads the options and runs the benchmark."""
    options = parser(__doc__)
    options.add_argument("--tasks", nargs="+", choices=CPU_TASKS, default=list(CPU_TASKS), metavar="TASK")
    options.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="MODEL")
    options.add_argument("--trials", type=int, default=200)
    options.add_argument("--seeds", type=int, default=3)
    quick = {"models": list(MODELS)[:5], "trials": 4, "seeds": 1}
    run_saved(options, result_name("drop_in", scheduler().name), benchmark, write_figure, **quick)


if __name__ == "__main__":
    main()
