"""Searches tasks with the graph model, TVM's XGBoost model, a random model and TVM's own search.

Runs in either environment, on the two tasks of two networks with the most floating-point operations times weight: the
search of ``tune`` with each cost model and seed, and TVM's own search once. Records latency against time and trials.
Finished runs are saved; the same command resumes.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import warnings
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress

from common import console, parser, result_name, run_saved, shipped_version, write_result
from search_curves import Points, Runs, best, compare_runs, comparison_table, finite, improvements
from setups import setup
from tvm_gnn_cost import GNNCostModel
from tvm_gnn_cost.files import write_text
from tvm_gnn_cost.progress import ignore
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.schedulers.scheduler import MeasureSettings, Task
from tvm_gnn_cost.scoring.cost_model import CostModel, UpdateSettings
from tvm_gnn_cost.tuning.result import Settings, TaskResult, TuneResult
from tvm_gnn_cost.tuning.search import ResultListener, Screening, numbers_of_samples, search


class Curve(ResultListener):
    """Records the time and the latency of every measured program of a search."""

    def __init__(self, result: TuneResult, work_dir: Path) -> None:
        super().__init__(result, work_dir, ignore, lambda: False)
        self.points: Points = []

    def measured(self, task: int, latencies: Sequence[float]) -> None:
        """Records a batch."""
        super().measured(task, latencies)
        self.points += [[self.elapsed, latency] for latency in latencies]


def heaviest_tasks(network: str, count: int) -> list[Task]:
    """The tasks with the most floating-point operations, counting all their occurrences."""
    tasks = scheduler().tasks(scheduler().network(network), scheduler().target())
    return sorted(tasks, key=lambda task: -scheduler().flops(task) * task.weight)[:count]


def make_model(name: str, seed: int, batch: int) -> Any:
    """A new cost model."""
    if name == "gnn":
        return GNNCostModel(CostModel.load("gnn", UpdateSettings(seed=seed)))
    return setup().xgb(seed) if name in ("xgb", "tvm") else scheduler().cost_model(name, seed, 1, batch)


def search_task(task: Task, model: str, seed: int, trials: int, batch: int, population: int) -> Points:
    """Runs one search, as ``tune`` does for a network."""
    np.random.seed(seed)  # XGBoost models first draw scores from numpy's global generator
    chosen, target = scheduler(), scheduler().target()
    settings = Settings(task.name, trials, None, model, seed, str(target), batch, population, chosen.name)
    result = TuneResult(
        settings, {}, {}, "", tasks=[TaskResult(task.name, task.weight, None, flops=chosen.flops(task))]
    )
    cost_model = make_model(model, seed, batch)
    with tempfile.TemporaryDirectory() as folder:
        curve = Curve(result, Path(folder))
        if model == "tvm":
            from tvm_search import search_with_tvm

            search_with_tvm(task, cost_model, Path(folder), curve)
            return curve.points
        screening = Screening(chosen, cost_model, target, numbers_of_samples([task], result.tasks), seed)
        search(chosen, [task], cost_model, screening, curve)
    return curve.points


def warm_up(task: Task) -> None:
    """Starts the workers and imports, which would count as time of the first search."""
    target = scheduler().target()
    sampled = scheduler().sample(task, target, 1, seed=0)
    list(scheduler().measure([(task, sampled)], target, MeasureSettings(repeats=1, turns=1)))
    GNNCostModel().predict(setup().context(task, target), sampled)


def benchmark(arguments: argparse.Namespace, finished: Path) -> None:
    """Runs what is missing in the folder ``finished``, prints the table and writes the JSON."""
    networks, count = ((setup().smallest,), 1) if arguments.quick else (setup().searched, 2)
    tasks = {f"{network}: {task.name}": task for network in networks for task in heaviest_tasks(network, count)}
    warm_up(next(iter(tasks.values())))
    sizes = arguments.trials, arguments.trials_per_round, arguments.population
    runs = run_all(arguments, tasks, lambda task, model, seed: search_task(tasks[task], model, seed, *sizes), finished)
    baselines = [one for one in ("xgb", "tvm") if one in arguments.models]
    metrics = {one: compare_runs(runs, one) for one in baselines}
    for one in baselines:
        console.print(comparison_table(metrics[one], one))
    per_run = [
        {"task": task, "model": model, "seed": seed, "best_s": best(points), "wall_clock_s": points[-1][0]}
        | {"improvements": improvements(points)}
        for (task, model, seed), points in runs.items()
    ]
    options = ("models", "trials", "trials_per_round", "population", "seeds")
    settings = {option: getattr(arguments, option) for option in options}
    write_result(
        arguments.json, result_name("search", scheduler().name), settings, {"against": finite(metrics), "runs": per_run}
    )


def run_all(
    arguments: argparse.Namespace,
    tasks: Collection[str],
    search: Callable[[str, str, int], Points],
    finished: Path,
) -> Runs:
    """The runs of all tasks, models and seeds; those that are saved in ``finished`` are not repeated."""
    runs: Runs = {}
    seeds = range(1 if arguments.quick else arguments.seeds)
    # All models of one task and seed in succession: the speed of a virtual machine changes within hours.
    todo = [
        (name, model, seed)
        for seed in seeds
        for name in tasks
        for model in arguments.models
        # TVM's own search takes ten times as long and has one seed.
        if model != "tvm" or seed == 0
    ]
    # Runs with another checkpoint are repeated.
    version = shipped_version()
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("searching", total=len(todo))
        for name, model, seed in todo:
            progress.update(bar, description=f"{name}, {model}, seed {seed}")
            settings = f"{arguments.trials}-{arguments.trials_per_round}-{arguments.population}"
            which = f"{model}-{version}" if model == "gnn" else model
            path = finished / f"{name.replace(': ', '.')}.{which}.{seed}.{settings}.json"
            if not path.exists():
                write_text(path, json.dumps(search(name, model, seed)))
            runs[name, model, seed] = json.loads(path.read_text())
            progress.advance(bar)
    return runs


def main() -> None:
    """Reads the options and runs the benchmark."""
    options = parser(__doc__)
    options.add_argument("--trials", type=int, default=64)
    options.add_argument("--trials-per-round", type=int, default=8)
    options.add_argument("--population", type=int, default=64)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--models", nargs="+", choices=setup().searches, default=list(setup().searches))
    warnings.simplefilter("ignore")
    run_saved(options, result_name("search", scheduler().name), benchmark, trials=2, trials_per_round=2, population=8)


if __name__ == "__main__":
    main()
