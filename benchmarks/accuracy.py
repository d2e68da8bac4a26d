"""Accuracy on held-out networks: graph models, TVM's two models and trivial baselines.

Runs in either environment, on the measured programs of its scheduler that come with the project. Each model is trained
on the training networks and operators once per seed, which also draws the validation tasks. All models see the same
programs. The network and the trees of the default model are also tested separately. Finished runs are saved; the same
command resumes.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common import console, parser, result_name, write_result
from offline import run_offline
from stores import extract_store, measured_on
from trained import ABLATIONS, BASELINES, Job, rows_of_networks, run_all
from tvm_gnn_cost import GraphStore
from tvm_gnn_cost.evaluation import compare
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.training.pipeline import split_programs

MODELS = ("gnn", "tpgnn", *BASELINES, *ABLATIONS)
#: Without the models of full trees, which train ten times as long.
_QUICK = ("gnn", *BASELINES)


def benchmark(arguments: argparse.Namespace, data: Sequence[Path], stores: Path, finished: Path) -> None:
    """Runs what is missing among the ``finished`` runs on ``data``, prints the tables and writes the JSON."""
    held_out, seeds = arguments.held_out, range(arguments.seeds)
    names = [name for name in arguments.models if not arguments.quick or name in _QUICK]
    statements = extract_store(data, stores, "statements")
    tree = extract_store(data, stores, "tree") if "tpgnn" in names else statements
    jobs = [
        Job(row, seed, tree if row == "tpgnn" else statements, data=tuple(data))
        for row in names
        for seed in seeds
        if row not in ABLATIONS or seed < arguments.ablation_seeds
    ]
    runs: dict[str, list[dict[str, Any]]] = {row: [] for row in names}
    for job, result in run_all(jobs, held_out, arguments.epochs, arguments.quick, finished):
        runs[job.name].append(result)
        if job.name == "gnn":
            for part, metrics in result["alone"].items():
                runs.setdefault(part, []).append(metrics)

    def rows(part: str, runs: Mapping[str, Sequence[Any]] = runs) -> dict[str, dict[str, dict[str, float]]]:
        return {row: compare.summarise([run[part] for run in results]) for row, results in runs.items()}

    networks = {network: rows(network) for network in held_out}
    by_processor = {row: [run["processors"] for run in results] for row, results in runs.items()}
    # All models were tested on the same programs.
    processors = {name: rows(name, by_processor) for name in by_processor[names[0]][0]}
    programs = GraphStore(statements).load()
    parts = split_programs(programs, held_out, 0)
    tested = len(rows_of_networks(programs, parts.test, held_out))
    title = f"{', '.join(held_out)}: {tested} programs; trained on {len(parts.train)}; {len(seeds)} seeds"
    everything = rows("all")
    console.print(compare.table(title, everything))
    for part, models in {**networks, **(processors if len(processors) > 1 else {})}.items():
        console.print(compare.table(part, {row: cells for row, cells in models.items() if row not in ABLATIONS}))
    settings = {
        "seeds": list(seeds),
        "ablation_seeds": min(arguments.ablation_seeds, len(seeds)),
        "epochs": arguments.epochs,
        "quick": arguments.quick,
        "held_out": list(held_out),
        "train_programs": len(parts.train),
        "validation_programs": len(parts.validation),
        "test_programs": tested,
        "data_measured_on": measured_on(data),
    }
    metrics = {"models": everything, "networks": networks, "processors": processors}
    write_result(arguments.json, result_name("accuracy", scheduler().name), settings, metrics)


def main() -> None:
    """Reads the options and runs the benchmark."""
    options = parser(__doc__)
    options.add_argument("--ablation-seeds", type=int, default=3, help="seeds of the ablations of feature groups")
    options.add_argument(
        "--models", nargs="+", choices=MODELS, default=MODELS, metavar="NAME", help="models of the table"
    )
    run_offline(options, "accuracy", benchmark)


if __name__ == "__main__":
    main()
