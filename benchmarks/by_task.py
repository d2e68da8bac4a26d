"""Accuracy by task: the shipped checkpoint and TVM's XGBoost model on each task of the held-out networks.

Runs in either environment, on the measured programs that come with the project; XGBModel is trained on the training
programs with seed 0. Writes the pairwise accuracy on each task, and the predicted and measured throughput of every
program.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from pathlib import Path

from common import console, parser, result_name, table_of, write_result
from offline import run_offline
from stores import extract_store, measured_on
from trained import rows_of_networks
from tvm_gnn_cost import CostModel, GraphStore
from tvm_gnn_cost.evaluation import compare
from tvm_gnn_cost.evaluation.metrics import evaluate
from tvm_gnn_cost.schedulers import package, scheduler
from tvm_gnn_cost.training.pipeline import split_programs, train_xgb


def benchmark(arguments: argparse.Namespace, data: Sequence[Path], stores: Path, _finished: Path) -> None:
    """Ranks the test programs, prints the tasks and writes the JSON."""
    held_out = tuple(arguments.held_out)
    programs = GraphStore(extract_store(data, stores, "statements")).load(with_features=True)
    parts = split_programs(programs, held_out, 0)
    test = programs.select(rows_of_networks(programs, parts.test, held_out))
    models = {
        "gnn": compare.gnn(CostModel.load()),
        "xgb": compare.trained_xgb(train_xgb(package().XGBBaseline(0), programs, parts)),
    }
    predictions = {name: model(test) for name, model in models.items()}
    evaluated = {name: evaluate(test, *both, held_out) for name, both in predictions.items()}
    tasks = [
        {"task": rows[0].task, "programs": rows[0].programs}
        | {name: round(row.metrics["pairwise_accuracy"], 4) for name, row in zip(models, rows, strict=True)}
        for rows in zip(*(rows for _, rows in evaluated.values()), strict=True)
        # NaN where no two programs of the task differ.
        if not math.isnan(rows[0].metrics["pairwise_accuracy"])
    ]
    columns = ("task", "programs", *(f"{name}, pairwise accuracy" for name in models))
    cells = [(task["task"], str(task["programs"]), *(f"{task[name]:.3f}" for name in models)) for task in tasks]
    console.print(table_of(f"{', '.join(held_out)}: {len(test)} programs", columns, cells))
    throughput: dict[str, list[float]] = {"measured": test.throughput().tolist()}
    throughput |= {name: predicted.tolist() for name, (_, predicted) in predictions.items()}
    metrics = {
        "models": {name: overall for name, (overall, _) in evaluated.items()},
        "tasks": tasks,
        "throughput": {name: [round(value, 3) for value in values] for name, values in throughput.items()},
    }
    settings = {"held_out": list(held_out), "quick": arguments.quick, "data_measured_on": measured_on(data)}
    write_result(arguments.json, result_name("by_task", scheduler().name), settings, metrics)


def main() -> None:
    """Reads the options and runs the benchmark."""
    run_offline(parser(__doc__), "by_task", benchmark)


if __name__ == "__main__":
    main()
