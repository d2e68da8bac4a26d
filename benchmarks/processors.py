"""What the facts of a target are worth: a model for each processor, one for all, and one for all that reads the facts.

Each model is tested on every processor that has programs of the networks that no model was trained on. A model that
learned from another processor alone shows what a user of a new one gets. Finished runs are saved, and a saved run is
not run again.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from common import console, parser, result_name, write_result
from offline import run_offline
from stores import extract_store, measured_on
from trained import WITHOUT_TARGET, Job, Share, processor_of_each, rows_of_networks, run_all
from tvm_gnn_cost import GraphStore
from tvm_gnn_cost.evaluation import compare
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.training.pipeline import split_programs


def benchmark(arguments: argparse.Namespace, data: Sequence[Path], stores: Path, finished: Path) -> None:
    """Runs what is missing among the ``finished`` runs on ``data``, prints the tables and writes the JSON."""
    held_out, seeds = arguments.held_out, range(arguments.seeds)
    store = extract_store(data, stores, "statements")
    programs = GraphStore(store).load()
    test = rows_of_networks(programs, split_programs(programs, held_out, 0).test, held_out)
    tested = sorted(set(processor_of_each(programs)[test].tolist()))
    shares = {name: Share(processor=name) for name in tested} | {"all": Share()}
    models = [(model, learned) for learned in shares for model in ("gnn", "xgb")] + [(WITHOUT_TARGET, "all")]
    if arguments.quick:
        # Of so few programs, those of one processor may have none to validate on.
        models = [("gnn", "all"), (WITHOUT_TARGET, "all")]
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    jobs = [Job(model, seed, store, shares[learned]) for model, learned in models for seed in seeds]
    for job, result in run_all(jobs, held_out, arguments.epochs, arguments.quick, finished):
        runs.setdefault((job.name, job.share.processor or "all"), []).append(result)
    found = {
        name: {
            f"{model}, trained on {learned}": compare.summarise(
                [one["processors"][name] for one in runs[model, learned]]
            )
            for model, learned in models
        }
        for name in tested
    }
    for name, rows in found.items():
        console.print(compare.table(f"tested on {name}: {', '.join(held_out)}; {len(seeds)} seeds", rows))
    settings = {"seeds": list(seeds), "held_out": list(held_out), "epochs": arguments.epochs, "quick": arguments.quick}
    settings["data_measured_on"] = measured_on(data)
    learned = {f"{model}, trained on {learned}": runs[model, learned][0]["train_programs"] for model, learned in models}
    metrics = {"tested_on": found, "train_programs": learned}
    write_result(arguments.json, result_name("processors", scheduler().name), settings, metrics)


def main() -> None:
    """Reads the options and runs the benchmark."""
    run_offline(parser(__doc__), "processors", benchmark)


if __name__ == "__main__":
    main()
