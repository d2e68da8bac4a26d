"""Accuracy on networks that no model was trained on: graph models against TVM's XGBoost and trivial baselines.

Each model is trained on the training networks and operators of the data set that comes with the project, once a
seed; a seed also draws the validation tasks. Every model sees the same programs.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch
from rich.progress import Progress

from common import DATA, WORK, console, parser, write_result
from tvm_gnn_cost.datasets.extract import extract_collection
from tvm_gnn_cost.datasets.programs import MeasuredPrograms
from tvm_gnn_cost.datasets.store import GraphStore
from tvm_gnn_cost.evaluation import compare
from tvm_gnn_cost.evaluation.metrics import evaluate
from tvm_gnn_cost.graphs.program_graph import Detail
from tvm_gnn_cost.models.topk_gnn import PRESETS
from tvm_gnn_cost.networks.catalogue import HELD_OUT
from tvm_gnn_cost.training.fit import PRESET_SETTINGS
from tvm_gnn_cost.training.pipeline import split_programs, train_gnn, train_xgb

#: The bare tree, then each group of node values added to it alone, then all together (the default model).
_GROUPS = ("constant", "dtype", "loop", "access", "work")
ABLATIONS: dict[str, tuple[str, ...]] = {
    "types only": (),
    **{f"types + {group}": (group,) for group in _GROUPS},
}

BASELINES = ("xgb", "node-count", "constant", "random")

#: The quick run takes the programs of one workload in so many.
QUICK_EVERY = 10


class _Bar:
    """Draws an extraction."""

    def __init__(self, progress: Progress, title: str) -> None:
        self.progress, self.bar = progress, progress.add_task(title, total=None)

    def extracted(self, done: int, total: int) -> None:
        self.progress.update(self.bar, completed=done, total=total)


def extract_store(data: Path, detail: Detail, stores: Path) -> Path:
    """A store of the data set's programs; made at the first call, which takes a minute or two."""
    folder = stores / f"{data.name}-{detail}"
    with Progress(console=console, transient=True) as progress:
        bar = _Bar(progress, f"extracting {data.name} ({detail})")
        extract_collection(data, GraphStore(folder), detail=detail, progress=bar)
    return folder


def thin_out(data: Path, folder: Path) -> Path:
    """A copy of a packed collection with few of its workloads' programs, for the quick run."""
    folder.mkdir()
    for name in ("card.json", "tasks.jsonl.gz", "database_workload.json.gz"):
        shutil.copy(data / name, folder / name)
    records, sidecar = "database_tuning_record.json.gz", "measurements.jsonl.gz"
    with (
        gzip.open(data / records) as record_lines,
        gzip.open(data / sidecar) as sidecar_lines,
        gzip.open(folder / records, "wb") as kept_records,
        gzip.open(folder / sidecar, "wb") as kept_sidecar,
    ):
        for record, line in zip(record_lines, sidecar_lines, strict=True):
            if json.loads(record)[0] % QUICK_EVERY == 0:
                kept_records.write(record)
                kept_sidecar.write(line)
    return folder


def _preset(name: str) -> str:
    """Which preset a row of the table is a variant of."""
    return name if name in PRESETS else "gnn"


def train_model(name: str, programs: MeasuredPrograms, seed: int, epochs: int | None, folder: Path) -> compare.Model:
    """The model of a row of the table, trained with a seed."""
    parts = split_programs(programs, HELD_OUT, seed)
    if name == "xgb":
        return compare.trained_xgb(train_xgb(programs, parts, seed))
    if name in BASELINES:
        mean = float(programs.throughput()[np.concatenate([parts.train, parts.validation])].mean())
        simple: dict[str, Callable[[], compare.Model]] = {
            "node-count": lambda: compare.node_count(mean),
            "constant": lambda: compare.constant(mean),
            "random": lambda: compare.random(seed),
        }
        return simple[name]()
    preset = _preset(name)
    config = replace(PRESETS[preset], groups=ABLATIONS.get(name, PRESETS[preset].groups))
    settings = replace(PRESET_SETTINGS[preset], seed=seed)
    if epochs is not None:
        settings = replace(settings, epochs=epochs)
    return compare.gnn(train_gnn(programs, parts, config, settings, folder))


def run(name: str, seed: int, store: Path, epochs: int | None, runs: Path) -> tuple[str, int, dict[str, Any]]:
    """Trains and tests one model with one seed; a run that was saved before is read instead."""
    preset = None if name in BASELINES else _preset(name)
    settings = preset and [asdict(PRESETS[preset]), asdict(PRESET_SETTINGS[preset])]
    known = json.dumps([name, seed, epochs, settings, len(GraphStore(store)), ABLATIONS.get(name)])
    path = runs / f"{name.replace(' ', '-')}-{seed}-{hashlib.sha256(known.encode()).hexdigest()[:12]}.json"
    if not path.exists():
        torch.set_num_threads(1)  # a run a core: two threads on one small model are hardly faster than one
        programs = GraphStore(store).load(with_features=True)
        model = train_model(name, programs, seed, epochs, path.with_suffix(".fit"))
        test = programs.select(split_programs(programs, HELD_OUT, seed).test)
        scores, predicted = model(test)
        result = {"all": evaluate(test, scores, predicted, HELD_OUT)[0]}
        result |= {network: evaluate(test, scores, predicted, (network,))[0] for network in HELD_OUT}
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_suffix(".tmp")
        unfinished.write_text(json.dumps(result))
        unfinished.replace(path)
    return name, seed, json.loads(path.read_text())


def main() -> None:
    """Reads the options."""
    options = parser(__doc__)
    options.add_argument("--data", type=Path, default=DATA, help="a collection, see 'tvm-gnn-cost collect --help'")
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--ablation-seeds", type=int, default=3, help="for the rows for groups of node values")
    options.add_argument("--no-ablation", action="store_true", help="leave out the rows for groups of node values")
    options.add_argument("--runs", type=Path, default=WORK / "accuracy", help="where finished runs are kept")
    arguments = options.parse_args()
    if arguments.quick:
        with tempfile.TemporaryDirectory() as folder:
            benchmark(arguments, thin_out(arguments.data, Path(folder) / "thin"), Path(folder), Path(folder) / "runs")
    else:
        benchmark(arguments, arguments.data, WORK, arguments.runs)


def benchmark(arguments: argparse.Namespace, data: Path, stores: Path, finished: Path) -> None:
    """Runs what is missing among the ``finished`` runs, prints the tables and writes the JSON.

    ``stores`` is where the stores go that are made out of ``data``.
    """
    seeds = range(1 if arguments.quick else arguments.seeds)
    epochs = 1 if arguments.quick else None
    # The full trees train ten times longer: the quick run does without them.
    names = ["gnn", *BASELINES] if arguments.quick else ["gnn", "tpgnn", *BASELINES]
    if not (arguments.no_ablation or arguments.quick):
        names += ABLATIONS
    statements = extract_store(data, "statements", stores)
    tree = extract_store(data, "tree", stores) if "tpgnn" in names else statements
    jobs = [
        (name, seed) for name in names for seed in seeds if name not in ABLATIONS or seed < arguments.ablation_seeds
    ]
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("training", total=len(jobs))
        work = joblib.Parallel(n_jobs=joblib.cpu_count(), return_as="generator_unordered")
        for name, seed, result in work(
            joblib.delayed(run)(name, seed, tree if name == "tpgnn" else statements, epochs, finished)
            for name, seed in jobs
        ):
            runs[name].append(result)
            accuracy = result["all"]["pairwise_accuracy"]
            progress.console.print(f"{name}, seed {seed}: pairwise accuracy {accuracy:.3f}", highlight=False)
            progress.advance(bar)

    def rows(part: str) -> dict[str, dict[str, dict[str, float]]]:
        return {name: compare.summarise([result[part] for result in found]) for name, found in runs.items()}

    parts = split_programs(GraphStore(statements).load(with_features=True), HELD_OUT, 0)
    title = f"{', '.join(HELD_OUT)}: {len(parts.test)} programs; trained on {len(parts.train)}; {len(seeds)} seeds"
    console.print(compare.table(title, rows("all")))
    for network in HELD_OUT:
        console.print(compare.table(network, {n: row for n, row in rows(network).items() if n not in ABLATIONS}))
    card = json.loads((data / "card.json").read_text())
    settings = {
        "seeds": list(seeds),
        "ablation_seeds": min(arguments.ablation_seeds, len(seeds)),
        "quick": arguments.quick,
        "held_out": list(HELD_OUT),
        "train_programs": len(parts.train),
        "validation_programs": len(parts.validation),
        "test_programs": len(parts.test),
        "data_measured_on": card["machine"],
    }
    metrics = {"models": rows("all"), "networks": {network: rows(network) for network in HELD_OUT}}
    write_result(arguments.json, "accuracy", settings, metrics)


if __name__ == "__main__":
    main()
