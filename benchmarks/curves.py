"""Learning curves: accuracy against the number of training tasks and of programs per task, and of TVM's two models.

Runs in either environment, on the measured programs of its scheduler that come with the project, and tests on held-out
networks. A smaller share is a part of a larger one of the same seed. Finished runs are saved; the same command resumes.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from common import cell, console, parser, result_name, table_of, write_result
from offline import run_offline
from stores import extract_store, measured_on
from trained import Job, Share, run_all
from tvm_gnn_cost.evaluation.compare import summarise
from tvm_gnn_cost.schedulers import scheduler

MODELS = ("gnn", "xgb", "mlp")
_TASKS = (1 / 8, 1 / 4, 1 / 2, 1.0)
_PROGRAMS_PER_TASK = (2, 4, 8)
_METRICS = {"pairwise_accuracy": "pairwise accuracy", "top1": "top-1", "top5": "top-5"}

#: Means over the seeds of one share: numbers of tasks and programs, and metrics.
Point = Mapping[str, Any]


def point(share: Share, results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The point of a share from its runs, one for each seed."""
    return {
        "share_of_tasks": share.tasks,
        "programs_per_task": share.programs_per_task,
        "tasks": round(statistics.mean(run["train_tasks"] for run in results)),
        "programs": round(statistics.mean(run["train_programs"] for run in results)),
        "metrics": summarise([run["all"] for run in results]),
    }


def halving(points: Sequence[Point], metric: str) -> float | None:
    """Factor of a model's error for each doubling of the training tasks, by a power law that is fitted to all points.

    None with fewer than two numbers of tasks.
    """
    whole = [point for point in points if point["programs_per_task"] is None]
    errors = [1 - point["metrics"][metric]["mean"] for point in whole]
    if len(whole) < 2 or min(errors) <= 0:
        return None
    slope = np.polyfit(np.log2([point["tasks"] for point in whole]), np.log2(errors), 1)[0]
    return float(2**slope)


def benchmark(arguments: argparse.Namespace, data: Sequence[Path], stores: Path, finished: Path) -> None:
    """Runs what is missing among the ``finished`` runs on ``data``, prints the table and writes the JSON."""
    held_out, seeds = arguments.held_out, range(arguments.seeds)
    shares = [Share(tasks) for tasks in _TASKS] + [Share(1.0, programs) for programs in _PROGRAMS_PER_TASK]
    if arguments.quick:
        shares = [Share(1 / 2), Share(1.0), Share(1.0, 2)]
    store = extract_store(data, stores, "statements")
    # The longest first, so that all cores end at about the same time.
    shares.sort(key=lambda share: share.tasks * (share.programs_per_task or 16), reverse=True)
    jobs = [Job(name, seed, store, share) for name in arguments.models for share in shares for seed in seeds]
    runs: dict[tuple[str, Share], list[dict[str, Any]]] = {}
    for job, result in run_all(jobs, held_out, arguments.epochs, arguments.quick, finished):
        runs.setdefault((job.name, job.share), []).append(result)
    models = {name: [point(share, runs[name, share]) for share in shares] for name in arguments.models}
    rows = [
        (name, str(one["tasks"]), str(one["programs"]), *(cell(one["metrics"][key]) for key in _METRICS))
        for name, points in models.items()
        for one in points
    ]
    columns = ("model", "tasks", "programs", *_METRICS.values())
    console.print(table_of(f"{', '.join(held_out)}; {len(seeds)} seeds", columns, rows))
    doubling = {name: {key: halving(points, key) for key in _METRICS} for name, points in models.items()}
    for name, factors in doubling.items():
        shown = ", ".join(f"{value:.3f} ({_METRICS[key]})" for key, value in factors.items() if value is not None)
        console.print(f"{name}: factor of the error for twice as many tasks: {shown}", highlight=False)
    settings = {"seeds": list(seeds), "held_out": list(held_out), "epochs": arguments.epochs, "quick": arguments.quick}
    settings["data_measured_on"] = measured_on(data)
    metrics = {"models": models, "errors_left_after_twice_the_tasks": doubling}
    write_result(arguments.json, result_name("curves", scheduler().name), settings, metrics)


def main() -> None:
    """Reads the options and runs the benchmark."""
    options = parser(__doc__)
    options.add_argument("--models", nargs="+", choices=MODELS, default=MODELS)
    run_offline(options, "curves", benchmark)


if __name__ == "__main__":
    main()
