"""Accuracy on networks that no model was trained on: graph models against TVM's two and trivial baselines.

Runs in either environment, on the measured programs of its scheduler that come with the project. Each model is trained
on the training networks and operators, once a seed; a seed also draws the validation tasks. Every model sees the same
programs. Every finished run is saved at once, and a saved run is not run again.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from common import console, parser, result_name, write_result
from offline import run_offline
from stores import extract_store, measured_on
from trained import ABLATIONS, BASELINES, Job, run_all
from tvm_gnn_cost import GraphStore
from tvm_gnn_cost.datasets.held_out import TEST_NETWORKS
from tvm_gnn_cost.evaluation import compare
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.training.pipeline import split_programs


def benchmark(arguments: argparse.Namespace, data: Path, stores: Path, finished: Path) -> None:
    """Runs what is missing among the ``finished`` runs on ``data``, prints the tables and writes the JSON."""
    held_out = TEST_NETWORKS[scheduler().name]
    seeds = range(1 if arguments.quick else arguments.seeds)
    # The full trees train ten times longer: the quick run does without them.
    names = ["gnn", *BASELINES] if arguments.quick else ["gnn", "tpgnn", *BASELINES]
    if not (arguments.no_ablation or arguments.quick):
        names += ABLATIONS
    statements = extract_store(data, stores, "statements")
    tree = extract_store(data, stores, "tree") if "tpgnn" in names else statements
    jobs = [
        Job(row, seed, tree if row == "tpgnn" else statements)
        for row in names
        for seed in seeds
        if row not in ABLATIONS or seed < arguments.ablation_seeds
    ]
    runs: dict[str, list[dict[str, Any]]] = {row: [] for row in names}
    for job, result in run_all(jobs, held_out, arguments.quick, finished):
        runs[job.name].append(result)

    def rows(part: str) -> dict[str, dict[str, dict[str, float]]]:
        return {row: compare.summarise([result[part] for result in found]) for row, found in runs.items()}

    parts = split_programs(GraphStore(statements).load(with_features=True), held_out, 0)
    title = f"{', '.join(held_out)}: {len(parts.test)} programs; trained on {len(parts.train)}; {len(seeds)} seeds"
    console.print(compare.table(title, rows("all")))
    for network in held_out:
        console.print(compare.table(network, {n: cells for n, cells in rows(network).items() if n not in ABLATIONS}))
    settings = {
        "seeds": list(seeds),
        "ablation_seeds": min(arguments.ablation_seeds, len(seeds)),
        "quick": arguments.quick,
        "held_out": list(held_out),
        "train_programs": len(parts.train),
        "validation_programs": len(parts.validation),
        "test_programs": len(parts.test),
        "data_measured_on": measured_on(data),
    }
    metrics = {"models": rows("all"), "networks": {network: rows(network) for network in held_out}}
    write_result(arguments.json, result_name("accuracy", scheduler().name), settings, metrics)


def main() -> None:
    """Reads the options and runs the benchmark."""
    options = parser(__doc__)
    options.add_argument("--ablation-seeds", type=int, default=3, help="for the rows for groups of node values")
    options.add_argument("--no-ablation", action="store_true", help="leave out the rows for groups of node values")
    run_offline(options, "accuracy", benchmark)


if __name__ == "__main__":
    main()
