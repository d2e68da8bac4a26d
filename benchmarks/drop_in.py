"""Changes one argument of TVM's own search of a task: its cost model.

Runs in either environment: MetaSchedule's ``tune_tir``, or ``auto_scheduler``'s ``SketchPolicy``, each with TVM's
design space, builder, runner and settings, of tasks of networks that the shipped checkpoints did not learn from. The
cost models are ``GNNCostModel()``, the same without updates, its trees alone (without updates), its network alone,
``XGBModel()``, whose scores are random until it has 100 measurements, the same from its first measurement on, the same
trained on our measured programs, TVM's ``MLPModel`` (MetaSchedule), without and with our programs, and random scores.
Afterwards the fastest programs of a task are compared with NumPy and timed interleaved. Finished searches are saved;
the same command resumes. Nothing else may run on the machine.
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

from common import console, parser, result_name, run_saved, table_of, write_result
from search_curves import DROP_IN_BASELINES, DROP_IN_COLUMNS, best, drop_in_rows, improvements
from single_tasks import CPU_TASKS, SMALL, SingleTask, measure_again
from tvm_gnn_cost import CostModel, GNNCostModel
from tvm_gnn_cost.files import write_text
from tvm_gnn_cost.measuring.machine import machine_to_itself, usable_cores
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.scoring.cost_model import UpdateSettings

if scheduler().name == "auto-scheduler":
    from drop_in_auto_scheduler import BASELINES, search, trees_alone
else:
    from drop_in_meta_schedule import BASELINES, search, trees_alone

#: Task, cost model and seed.
Run = tuple[str, str, int]

#: Name -> makes a cost model from a seed and the folder of the runs.
MODELS: dict[str, Callable[[int, Path], Any]] = {
    "GNNCostModel()": lambda _seed, _runs: GNNCostModel(),
    "GNNCostModel() without updates": lambda _seed, _runs: GNNCostModel(CostModel.load("gnn", UpdateSettings(trees=0))),
    "its trees alone": lambda _seed, _runs: trees_alone(),
    "its network alone": lambda _seed, _runs: GNNCostModel(CostModel(replace(CostModel.load().checkpoint, trees=None))),
    **BASELINES,
}


def _search_and_save(task: str, model: str, seed: int, arguments: argparse.Namespace, path: Path) -> None:
    # XGBoost models first draw scores from NumPy's global generator.
    np.random.seed(seed)
    with machine_to_itself():
        cost_model = MODELS[model](seed, arguments.runs)
        found = search(_tasks(arguments)[task], cost_model, seed, arguments.trials, path.with_suffix(".so"))
    write_text(path, json.dumps(found))


def _measure_again(task: str, libraries: Sequence[Path], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    with machine_to_itself():
        return measure_again(_tasks(arguments)[task], libraries, tvm.cpu())


def _tasks(arguments: argparse.Namespace) -> Mapping[str, SingleTask]:
    return SMALL if arguments.quick else CPU_TASKS


def _in_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a function in another process: TVM keeps what it has compiled, and a program may crash."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def benchmark(arguments: argparse.Namespace, finished: Path) -> None:
    """Runs what is missing in the folder ``finished``, prints the tables, and writes the JSON after each task."""
    arguments.runs = finished
    finished.mkdir(parents=True, exist_ok=True)
    saved: list[dict[str, Any]] = []
    runs: dict[Run, dict[str, Any]] = {}
    again: dict[Run, dict[str, Any]] = {}
    for seed in range(arguments.seeds):
        for task in [one for one in _tasks(arguments) if arguments.quick or one in arguments.tasks]:
            paths = {}
            for model in arguments.models:
                name = "".join(letter if letter.isalnum() else "-" for letter in f"{task} {model}")
                path = finished / f"{name}.{arguments.trials}.{seed}.json"
                console.print(f"{task}, {model}, seed {seed}", highlight=False)
                if not path.exists():
                    _in_process(_search_and_save, task, model, seed, arguments, path)
                runs[task, model, seed] = json.loads(path.read_text())
                if path.with_suffix(".so").exists():
                    paths[task, model, seed] = path.with_suffix(".so")
            rows = _in_process(_measure_again, task, list(paths.values()), arguments)
            again |= dict(zip(paths, rows, strict=True))
            saved = _saved(runs, again)
            _write(arguments, saved)
    for baseline in (one for one in DROP_IN_BASELINES if one in arguments.models):
        console.print(table_of(f"latency / that of {baseline}", DROP_IN_COLUMNS, drop_in_rows(saved, baseline)))


def _saved(runs: Mapping[Run, Any], again: Mapping[Run, Any]) -> list[dict[str, Any]]:
    """The searches as in the JSON."""
    return [
        {"task": task, "model": model, "seed": seed, "best_s": best(found["points"])}
        | {"wall_clock_s": found["points"][-1][0], "phases_s": found["phases_s"]}
        | {"improvements": improvements(found["points"]), "again": again.get((task, model, seed))}
        for (task, model, seed), found in runs.items()
    ]


def _write(arguments: argparse.Namespace, saved: Sequence[Mapping[str, Any]]) -> None:
    settings = {"trials": arguments.trials, "seeds": arguments.seeds, "threads": usable_cores()}
    settings |= {"models": arguments.models, "target": str(scheduler().target())}
    write_result(arguments.json, result_name("drop_in", scheduler().name), settings, {"runs": saved})


def main() -> None:
    """Reads the options and runs the benchmark."""
    options = parser(__doc__)
    options.add_argument("--tasks", nargs="+", choices=CPU_TASKS, default=list(CPU_TASKS), metavar="TASK")
    options.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="MODEL")
    options.add_argument("--trials", type=int, default=200)
    options.add_argument("--seeds", type=int, default=3)
    run_saved(options, result_name("drop_in", scheduler().name), benchmark, models=list(MODELS)[:5], trials=4, seeds=1)


if __name__ == "__main__":
    main()
