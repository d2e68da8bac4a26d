"""What the cost model's updates are worth in a search, and what they cost, replayed on MetaSchedule's programs.

The tasks of the test networks come one after the other, as in tuning a network. Half of the programs of each are ranked
before and after an update with the other half. Accuracy on validation tasks of the training networks, before the first
update and after the last one, shows what the model forgets.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import track
from rich.table import Table

from common import DATA, WORK, console, parser, write_result
from stores import extract_store, thin_out
from tvm_gnn_cost import Checkpoint, GraphStore
from tvm_gnn_cost.datasets.held_out import TEST_NETWORKS
from tvm_gnn_cost.datasets.programs import MeasuredPrograms
from tvm_gnn_cost.evaluation.metrics import pairwise_accuracy
from tvm_gnn_cost.measuring.exclusive import machine_to_itself
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.training.online import OnlineModel, OnlineSettings
from tvm_gnn_cost.training.pipeline import split_programs

#: A task with fewer programs in a half is left out.
LEAST = 4


def accuracy(model: OnlineModel, programs: MeasuredPrograms) -> float:
    """Mean pairwise accuracy within tasks."""
    scores = model.scorer.score(programs.graphs, programs.task)
    found = []
    for task in range(len(programs.tasks)):
        rows = np.flatnonzero(programs.task == task)
        if len(rows) >= LEAST and len(np.unique(programs.latency[rows])) > 1:
            found.append(pairwise_accuracy(scores[rows], -programs.latency[rows]))
    return statistics.fmean(found)


def replay(
    checkpoint: Checkpoint, settings: OnlineSettings, known: MeasuredPrograms, asked: MeasuredPrograms, limit: int
) -> dict[str, float]:
    """The metrics of one run over at most ``limit`` tasks of ``asked``."""
    model = OnlineModel(checkpoint, settings)
    known_before = accuracy(model, known)
    before: list[float] = []
    after: list[float] = []
    seconds: list[float] = []
    rng = np.random.default_rng(settings.seed)
    tasks = rng.permutation(len(asked.tasks)).tolist()
    for task in track(tasks, "updates", console=console, transient=True):
        rows = rng.permutation(np.flatnonzero(asked.task == task))
        seen, wanted = (asked.select(half) for half in np.array_split(rows, 2))
        if min(len(seen), len(wanted)) < LEAST or len(before) == limit:
            continue
        before.append(accuracy(model, wanted))
        start = time.perf_counter()
        model.learn(asked.tasks[task].hash, seen.graphs, seen.latency)
        seconds.append(time.perf_counter() - start)
        after.append(accuracy(model, wanted))
    return {
        "tasks": len(before),
        "pairwise_before": statistics.fmean(before),
        "pairwise_after": statistics.fmean(after),
        "known_before": known_before,
        "known_after": accuracy(model, known),
        "seconds_per_update": statistics.median(seconds),
    }


def benchmark(arguments: argparse.Namespace, data: Sequence[Path], stores: Path) -> None:
    """Runs each seed, prints the table and writes the JSON."""
    programs = GraphStore(extract_store(data, stores, "statements")).load()
    # The split that the shipped checkpoint was trained with: it has seen neither of the two parts.
    parts = split_programs(programs, TEST_NETWORKS["meta-schedule"], 0)
    known = programs.select(parts.validation)
    asked = known if arguments.validation else programs.select(parts.test)
    given = {f.name: getattr(arguments, f.name) for f in fields(OnlineSettings) if hasattr(arguments, f.name)}
    settings = replace(OnlineSettings(), **{name: value for name, value in given.items() if value is not None})
    checkpoint, limit = Checkpoint.load(arguments.checkpoint), 2 if arguments.quick else arguments.tasks
    runs: list[dict[str, float]] = []
    for seed in range(1 if arguments.quick else arguments.seeds):
        with machine_to_itself():
            runs.append(replay(checkpoint, replace(settings, seed=seed), known, asked, limit))
    metrics: dict[str, Any] = {}
    table = Table(title=f"updates on {runs[0]['tasks']} tasks, {len(runs)} seeds", title_justify="left")
    for column in ("", "mean", "std"):
        table.add_column(column, justify="right" if column else "left")
    for name in runs[0]:
        values = [run[name] for run in runs]
        metrics[name] = {"mean": statistics.fmean(values), "std": float(np.std(values))}
        table.add_row(name, f"{metrics[name]['mean']:.3f}", f"{metrics[name]['std']:.3f}")
    console.print(table)
    write_result(arguments.json, "online", {**asdict(settings), "validation_tasks": arguments.validation}, metrics)


def main() -> None:
    """Reads the options."""
    options = parser(__doc__)
    options.add_argument("--checkpoint", type=Path, default=scheduler("meta-schedule").checkpoint)
    options.add_argument("--tasks", type=int, default=40, help="at most so many tasks")
    options.add_argument("--seeds", type=int, default=3, help="each seed takes other tasks in another order")
    options.add_argument("--validation", action="store_true", help="on validation tasks, to choose settings")
    options.add_argument("--nodes-per-update", type=int, help="as in OnlineSettings, like the next ones")
    options.add_argument("--learning-rate", type=float)
    options.add_argument("--anchor", type=float)
    options.add_argument("--loss")
    arguments = options.parse_args()
    if arguments.quick:
        with tempfile.TemporaryDirectory() as folder:
            benchmark(arguments, thin_out(DATA["meta-schedule"], Path(folder) / "thin"), Path(folder))
    else:
        benchmark(arguments, DATA["meta-schedule"], WORK)


if __name__ == "__main__":
    main()
