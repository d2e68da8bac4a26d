"""Accuracy against the number of training tasks and of programs of each, for our model and TVM's two.

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
from rich.table import Table

from common import console, parser, result_name, write_result
from offline import run_offline
from stores import extract_store, measured_on
from trained import Job, Share, run_all
from tvm_gnn_cost.evaluation.compare import summarise
from tvm_gnn_cost.schedulers import scheduler

MODELS = ("gnn", "xgb", "mlp")
_TASKS = (1 / 8, 1 / 4, 1 / 2, 1.0)
_PROGRAMS_PER_TASK = (2, 4, 8)
_METRICS = {"pairwise_accuracy": "pairs in order", "top1": "top-1", "top5": "top-5"}

#: What learned from one share, averaged over seeds: its numbers of tasks and programs, and its metrics.
Point = Mapping[str, Any]


def point(share: Share, results: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the runs with one share and several seeds found."""
    return {
        "share_of_tasks": share.tasks,
        "programs_per_task": share.programs_per_task,
        "tasks": round(statistics.mean(one["train_tasks"] for one in results)),
        "programs": round(statistics.mean(one["train_programs"] for one in results)),
        "metrics": summarise([one["all"] for one in results]),
    }


def halving(points: Sequence[Point], metric: str) -> float | None:
    """What is left of a model's errors after each doubling of the training tasks: the slope of a line through all.

    The errors are fitted by a power of the number of tasks; None with fewer than two numbers of tasks.
    """
    whole = [one for one in points if one["programs_per_task"] is None]
    errors = [1 - one["metrics"][metric]["mean"] for one in whole]
    if len(whole) < 2 or min(errors) <= 0:
        return None
    slope = np.polyfit(np.log2([one["tasks"] for one in whole]), np.log2(errors), 1)[0]
    return float(2**slope)


def benchmark(arguments: argparse.Namespace, data: Sequence[Path], stores: Path, finished: Path) -> None:
    """Runs what is missing among the ``finished`` runs on ``data``, prints the table and writes the JSON."""
    held_out, seeds = arguments.held_out, range(arguments.seeds)
    shares = [Share(tasks) for tasks in _TASKS] + [Share(1.0, programs) for programs in _PROGRAMS_PER_TASK]
    if arguments.quick:
        shares = [Share(1 / 2), Share(1.0), Share(1.0, 2)]
    store = extract_store(data, stores, "statements")
    # The longest first, so that no core waits for the last.
    shares.sort(key=lambda share: share.tasks * (share.programs_per_task or 16), reverse=True)
    jobs = [Job(name, seed, store, share) for name in arguments.models for share in shares for seed in seeds]
    found: dict[tuple[str, Share], list[dict[str, Any]]] = {}
    for job, result in run_all(jobs, held_out, arguments.epochs, arguments.quick, finished):
        found.setdefault((job.name, job.share), []).append(result)
    models = {name: [point(share, found[name, share]) for share in shares] for name in arguments.models}
    table = Table(title=f"{', '.join(held_out)}; {len(seeds)} seeds", title_justify="left")
    for column in ("model", "tasks", "programs", *_METRICS.values()):
        table.add_column(column, justify="right")
    for name, points in models.items():
        for one in points:
            cells = [f"{one['metrics'][key]['mean']:.3f} ±{one['metrics'][key]['std']:.3f}" for key in _METRICS]
            table.add_row(name, str(one["tasks"]), str(one["programs"]), *cells)
    console.print(table)
    doubling = {name: {key: halving(points, key) for key in _METRICS} for name, points in models.items()}
    for name, left in doubling.items():
        said = ", ".join(f"{value:.2f} ({_METRICS[key]})" for key, value in left.items() if value is not None)
        console.print(f"{name}: errors that are left after twice as many tasks: {said}", highlight=False)
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
