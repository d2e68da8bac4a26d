"""Accuracy on networks that no model was trained on: graph models against TVM's two and trivial baselines.

Runs in either environment, on the measured programs of its scheduler that come with the project. Each model is trained
on the training networks and operators, once a seed; a seed also draws the validation tasks. Every model sees the same
programs. Every finished run is saved at once, and a saved run is not run again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch
from rich.progress import Progress

from common import DATA, WORK, console, parser, result_name, write_result
from stores import extract_store, measured_on, thin_out
from tvm_gnn_cost import GraphStore
from tvm_gnn_cost.datasets.held_out import TEST_NETWORKS
from tvm_gnn_cost.datasets.programs import MeasuredPrograms
from tvm_gnn_cost.evaluation import compare
from tvm_gnn_cost.evaluation.metrics import evaluate
from tvm_gnn_cost.files import write_text
from tvm_gnn_cost.models.topk_gnn import PRESETS
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.training.fit import PRESET_SETTINGS, preset_settings
from tvm_gnn_cost.training.pipeline import split_programs, train_gnn, train_xgb

#: The groups of node values, each added to the bare tree alone; the default model has them all.
_GROUPS = ("constant", "dtype", "loop", "access", "work")
ABLATIONS: dict[str, tuple[str, ...]] = {
    "types only": (),
    **{f"types + {group}": (group,) for group in _GROUPS},
}

BASELINES = ("xgb", "mlp", "node-count", "constant", "random")


def train_model(
    name: str, programs: MeasuredPrograms, held_out: Sequence[str], seed: int, epochs: int | None, folder: Path
) -> compare.Model:
    """The model of a row of the table, trained with a seed."""
    parts = split_programs(programs, held_out, seed)
    if name == "xgb":
        return compare.trained_xgb(train_xgb(scheduler().boosted_trees(seed), programs, parts))
    if name in BASELINES:
        rows = np.concatenate([parts.train, parts.validation])
        mean = float(programs.throughput()[rows].mean())
        if name == "mlp":
            mlp = scheduler().segment_mlp(seed)
            mlp.fit(programs.select(rows))
            return compare.trained_mlp(mlp, mean)
        simple: dict[str, Callable[[], compare.Model]] = {
            "node-count": lambda: compare.node_count(mean),
            "constant": lambda: compare.constant(mean),
            "random": lambda: compare.random(seed),
        }
        return simple[name]()
    preset = _preset(name)
    config = replace(PRESETS[preset], groups=ABLATIONS.get(name, PRESETS[preset].groups))
    train_tasks = len(np.unique(programs.task[parts.train]))
    settings = replace(preset_settings(preset, train_tasks), seed=seed)
    if epochs is not None:
        settings = replace(settings, epochs=epochs)
    return compare.gnn(train_gnn(programs, parts, config, settings, folder))


def run(
    name: str, seed: int, store: Path, held_out: Sequence[str], epochs: int | None, runs: Path
) -> tuple[str, int, dict[str, Any]]:
    """Trains and tests one model with one seed, or reads the run that was saved before."""
    preset = None if name in BASELINES else _preset(name)
    settings = preset and [asdict(PRESETS[preset]), asdict(PRESET_SETTINGS[preset])]
    known = json.dumps([name, seed, epochs, settings, _digest(store), ABLATIONS.get(name)])
    path = runs / f"{name.replace(' ', '-')}-{seed}-{hashlib.sha256(known.encode()).hexdigest()[:12]}.json"
    if not path.exists():
        torch.set_num_threads(1)  # a run a core: two threads on one small model are hardly faster than one
        programs = GraphStore(store).load(with_features=True)
        model = train_model(name, programs, held_out, seed, epochs, path.with_suffix(".fit"))
        test = programs.select(split_programs(programs, held_out, seed).test)
        scores, predicted = model(test)
        result = {"all": evaluate(test, scores, predicted, tuple(held_out))[0]}
        result |= {network: evaluate(test, scores, predicted, (network,))[0] for network in held_out}
        write_text(path, json.dumps(result))
    return name, seed, json.loads(path.read_text())


def _preset(name: str) -> str:
    """The preset that a row of the table is a variant of."""
    return name if name in PRESETS else "gnn"


def _digest(store: Path) -> str:
    """Of all that the store holds: a run belongs to the graphs that it was trained on."""
    digest = hashlib.sha256()
    for shard in GraphStore(store).shards():
        digest.update(shard.read_bytes())
    return digest.hexdigest()


def benchmark(arguments: argparse.Namespace, data: Path, stores: Path, finished: Path) -> None:
    """Runs what is missing among the ``finished`` runs on ``data``, prints the tables and writes the JSON."""
    held_out = TEST_NETWORKS[scheduler().name]
    seeds = range(1 if arguments.quick else arguments.seeds)
    epochs = 1 if arguments.quick else None
    # The full trees train ten times longer: the quick run does without them.
    names = ["gnn", *BASELINES] if arguments.quick else ["gnn", "tpgnn", *BASELINES]
    if not (arguments.no_ablation or arguments.quick):
        names += ABLATIONS
    statements = extract_store(data, stores, "statements")
    tree = extract_store(data, stores, "tree") if "tpgnn" in names else statements
    jobs = [(row, seed) for row in names for seed in seeds if row not in ABLATIONS or seed < arguments.ablation_seeds]
    runs: dict[str, list[dict[str, Any]]] = {row: [] for row in names}
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("training", total=len(jobs))
        # Starting a worker takes longer than a quick training.
        work = joblib.Parallel(n_jobs=1 if arguments.quick else joblib.cpu_count(), return_as="generator_unordered")
        for row, seed, result in work(
            joblib.delayed(run)(row, seed, tree if row == "tpgnn" else statements, held_out, epochs, finished)
            for row, seed in jobs
        ):
            runs[row].append(result)
            accuracy = result["all"]["pairwise_accuracy"]
            progress.console.print(f"{row}, seed {seed}: pairwise accuracy {accuracy:.3f}", highlight=False)
            progress.advance(bar)

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
    name = scheduler().name
    options = parser(__doc__)
    options.add_argument("--data", type=Path, default=DATA[name], help="the measured programs")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--ablation-seeds", type=int, default=3, help="for the rows for groups of node values")
    options.add_argument("--no-ablation", action="store_true", help="leave out the rows for groups of node values")
    runs = WORK / result_name("accuracy", name)
    options.add_argument("--runs", type=Path, default=runs, help="where finished runs are kept")
    arguments = options.parse_args()
    if not arguments.quick:
        benchmark(arguments, arguments.data, WORK, arguments.runs)
        return
    with tempfile.TemporaryDirectory() as folder:
        thin = thin_out(arguments.data, Path(folder) / "thin")
        benchmark(arguments, thin, Path(folder), Path(folder) / "runs")


if __name__ == "__main__":
    main()
