"""Learning in a search: accuracy on a task's programs before and after an update with others of its programs.

Runs in either environment, with its shipped checkpoint, on the measured programs of the held-out networks. The tasks
follow each other in a random order, as in the search of a network: a model learns from a random half of a task's
programs, and the other half is scored; the same model goes on to the next task.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rich.progress import track

from common import cell, console, parser, result_name, table_of, write_result
from offline import run_offline
from stores import extract_store, measured_on
from trained import Rows, part_of_each, rows_of_networks
from tvm_gnn_cost import CostModel, GraphStore
from tvm_gnn_cost.datasets.programs import MeasuredPrograms
from tvm_gnn_cost.evaluation.compare import summarise
from tvm_gnn_cost.evaluation.metrics import best_of_top, pairwise_accuracy
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.scoring.cost_model import UpdateSettings
from tvm_gnn_cost.training.pipeline import split_programs

#: Tasks with fewer programs are left out.
_FEWEST = 12

#: The part with all programs.
_ALL = "all"

_METRICS = {"pairwise_accuracy": "pairwise accuracy", "top1": "top-1"}

#: Name -> settings of the updates.
VARIANTS = {
    "no updates": UpdateSettings(trees=0),
    "updates": UpdateSettings(),
    "updates, of the task alone": UpdateSettings(others=0),
    "updates, all tasks with equal weights": UpdateSettings(weight=1.0),
    "updates, 40 trees": UpdateSettings(trees=40),
}


@dataclass(frozen=True)
class Row:
    """One task in one replay."""

    model: str
    part: str
    pairwise_accuracy: float
    top1: float


def replay(programs: MeasuredPrograms, tasks: Sequence[Rows], parts: Sequence[str], seed: int) -> Iterator[Row]:
    """Replays tasks with each variant.

    Args:
        programs: Measured programs.
        tasks: The programs of each task.
        parts: The part of the data that each task belongs to.
        seed: Of the order of the tasks and of the halves.
    """
    rng = np.random.default_rng(seed)
    models = {name: CostModel.load("gnn", settings) for name, settings in VARIANTS.items()}
    for number in track(rng.permutation(len(tasks)).tolist(), f"seed {seed}", console=console, transient=True):
        shuffled = rng.permutation(tasks[number])
        learned, scored = np.array_split(shuffled, 2)
        graphs, others = (programs.graphs.select(half).read() for half in (learned, scored))
        task, latency = programs.tasks[programs.task[learned[0]]].hash, programs.latency[scored]
        if len(np.unique(latency)) < 2:
            continue
        for name, model in models.items():
            model.update(graphs, programs.latency[learned], task=task)
            scores = model.predict(others)
            top1 = float(latency.min()) / best_of_top(scores, latency, 1)
            yield Row(name, parts[number], pairwise_accuracy(scores, 1 / latency), top1)


def benchmark(arguments: argparse.Namespace, data: Sequence[Path], stores: Path, _finished: Path) -> None:
    """Replays the tasks of the held-out networks, prints the tables and writes the JSON."""
    held_out = tuple(arguments.held_out)
    programs = GraphStore(extract_store(data, stores, "statements")).load()
    test = rows_of_networks(programs, split_programs(programs, held_out, 0).test, held_out)
    test = test[np.isfinite(programs.latency[test])]
    of_each = [test[programs.task[test] == task] for task in np.unique(programs.task[test])]
    tasks = [rows for rows in of_each if len(rows) >= (4 if arguments.quick else _FEWEST)]
    parts = part_of_each(programs, data)[[rows[0] for rows in tasks]].tolist()
    runs = [list(replay(programs, tasks, parts, seed)) for seed in range(arguments.seeds)]
    tables = {}
    for part in (_ALL, *sorted(set(parts))):
        found = [[row for row in run if part in (_ALL, row.part)] for run in runs]
        models = {name: summarise([_means(run, name) for run in found]) for name in VARIANTS}
        count = len(found[0]) // len(VARIANTS)
        tables[part] = {"tasks": count, "models": models}
        cells = [(name, cell(row["pairwise_accuracy"]), cell(row["top1"])) for name, row in models.items()]
        console.print(table_of(f"{part}: {count} tasks", ("", *_METRICS.values()), cells))
    settings = {"seeds": arguments.seeds, "held_out": list(held_out), "data_measured_on": measured_on(data)}
    write_result(arguments.json, result_name("updates", scheduler().name), settings, {"parts": tables})


def _means(run: Sequence[Row], model: str) -> dict[str, float]:
    """Means over the tasks of a replay."""
    return {name: statistics.mean(getattr(row, name) for row in run if row.model == model) for name in _METRICS}


def main() -> None:
    """Reads the options and runs the benchmark."""
    run_offline(parser(__doc__), "updates", benchmark)


if __name__ == "__main__":
    main()
