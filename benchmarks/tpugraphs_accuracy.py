"""Ranks the layouts of held-out networks: TGraph, its ablation, the other models, the baselines.

The runtimes are those of XLA on a CPU, measured with ``tvm-gnn-cost tpugraphs measure``. Each model is trained once per
seed on the graphs of train and valid. ``--tiles op_tuning_data.pb``, the data set's own file of TPU tiles, adds a small
demonstration: each of its 12 kernels is ranked by models that were trained on the others.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch
from rich.progress import Progress as Bar
from rich.table import Table

from common import WORK, XLA, console, parser, write_result
from tvm_gnn_cost import tpugraphs, xla_cpu
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.evaluation.compare import summarise
from tvm_gnn_cost.files import write_json
from tvm_gnn_cost.tpugraphs.format.collections import SPLITS
from tvm_gnn_cost.tpugraphs.preparation.prepare import prepare_files
from tvm_gnn_cost.tpugraphs.preparation.prepared_graph import PreparedGraph, prepared_folder, read_all_prepared
from tvm_gnn_cost.tpugraphs.ranking import baselines
from tvm_gnn_cost.tpugraphs.ranking.fit import fit
from tvm_gnn_cost.tpugraphs.ranking.metrics import graph_metrics, mean_metrics
from tvm_gnn_cost.tpugraphs.ranking.ranker import MODELS, score_with_all
from tvm_gnn_cost.tpugraphs.settings import MODEL_LOSS, RankerSettings, recipe

LAYOUTS, TILES = "layout:xla:random", "tile:xla"
BASELINES = ("xgb on pooled features", "fewest constraints", "random")


@dataclass(frozen=True)
class Size:
    """Size of the trainings; the published width and number of epochs would overfit a data set of this size."""

    epochs: int = 25
    channels: int = 64


@dataclass(frozen=True)
class Data:
    """Prepared graphs of a collection; the digest of their published files is part of a run's key."""

    prepared: Path
    collection: str
    digest: str


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        model: One of ``ranker.MODELS``.
        config: The model's settings that differ from its defaults.
        settings: The training's settings that differ from its defaults.
        models: Size of the ensemble, whose models differ in their seeds.
    """

    model: str
    config: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    models: int = 1


_RECIPE = recipe(LAYOUTS, "kernel-costs")
# The recipe of this model was chosen by cross-validation on train and valid.
KERNEL_COSTS = {name: getattr(_RECIPE, name) for name in ("epochs", "patience", "learning_rate")}
ROWS = {
    "kernel-costs": Row("kernel-costs", {}, KERNEL_COSTS),
    "four kernel-costs together": Row("kernel-costs", {}, KERNEL_COSTS, models=4),
    "tgraph": Row("tgraph"),
    "tgraph without channel attention": Row("tgraph", {"channel_attention": False}),
    "tgraph without cross attention": Row("tgraph", {"cross_attention": False}),
    "tgraph without edges": Row("tgraph", {"edges": False}),
    "tgraph, opcodes by fasttext": Row("tgraph", {"opcodes": "fasttext"}),
    "tgraph, sum of neighbours, L2 norm": Row("tgraph", {"aggregation": "sum", "l2_norm": True}),
    "tgraph, activation after the sum": Row("tgraph", {"activation": "behind"}),
    "four tgraphs together": Row("tgraph", models=4),
    "cheb-sage": Row("cheb-sage"),
    "rank-classes": Row("rank-classes"),
    "gru": Row("gru"),
}
TILE_ROWS = ("tgraph", "cheb-sage", "rank-classes", "gru")


def scores_of(
    row: str, seed: int, size: Size, train: Sequence[PreparedGraph], test: Sequence[PreparedGraph], folder: Path
) -> dict[str, Any]:
    """The scores of each test graph by the row's model, trained with a seed."""
    if row == "random":
        return {graph.name: baselines.random(graph, seed) for graph in test}
    if row == "fewest constraints":
        return {graph.name: baselines.fewest_constraints(graph) for graph in test}
    if row == "xgb on pooled features":
        trees = baselines.PooledTrees(seed)
        trees.fit(train)
        return {graph.name: trees.score(graph) for graph in test}
    config, settings = _how(row, seed, size, train[0].kind)
    rankers = []
    for number in range(ROWS[row].models):
        member = replace(settings, seed=seed + 1000 * number)
        # Validation decides nothing: no training is stopped early, and the last epoch is kept.
        rankers.append(fit(ROWS[row].model, config, train, train[:1], member, folder / str(number)))
    return {graph.name: score_with_all(rankers, graph) for graph in test}


def _how(row: str, seed: int, size: Size, kind: str) -> tuple[Any, RankerSettings]:
    spec = ROWS[row]
    config = MODELS[spec.model][1](**{"kind": kind, "channels": size.channels, **spec.config})
    settings = RankerSettings(loss=MODEL_LOSS[spec.model], epochs=size.epochs, patience=size.epochs, seed=seed)
    return config, replace(settings, **spec.settings)


def _training(row: str, size: Size) -> dict[str, Any]:
    """How a row was trained, for the JSON, which has the seeds elsewhere."""
    config, settings = _how(row, 0, size, "layout")
    how = {"models": ROWS[row].models, "model": asdict(config)}
    return how | {"fit": {name: value for name, value in asdict(settings).items() if name != "seed"}}


def run(row: str, seed: int, size: Size, data: Data, left_out: str, runs: Path) -> dict[str, dict[str, float]]:
    """The metrics of each test graph; a run that was saved before is read instead of repeated.

    ``left_out`` is what is held out and ranked: the split ``test``, the split ``valid`` (then ``test`` does not
    train either), or one graph of ``train``.
    """
    known = [row, seed, asdict(size), left_out, data.digest]
    if row in ROWS:
        known += [ROWS[row].model, *map(asdict, _how(row, seed, size, data.collection.partition(":")[0]))]
    path = runs / f"{hashlib.sha256(json.dumps(known).encode()).hexdigest()[:16]}.json"
    if not path.exists():
        torch.set_num_threads(1)  # There is one run per core.
        parts = {split: read_all_prepared(data.prepared, data.collection, split) for split in SPLITS}
        if left_out in ("valid", "test"):
            test = parts[left_out]
            train = parts["train"] if left_out == "valid" else [*parts["train"], *parts["valid"]]
        else:
            train = [graph for graph in parts["train"] if graph.name != left_out]
            test = [graph for graph in parts["train"] if graph.name == left_out]
        folder = path.with_suffix(".fit")
        scores = scores_of(row, seed, size, train, test, folder)
        shutil.rmtree(folder, ignore_errors=True)
        metrics_of = {graph.name: graph_metrics(data.collection, scores[graph.name], _runtime(graph)) for graph in test}
        write_json(path, metrics_of)
    metrics: dict[str, dict[str, float]] = json.loads(path.read_text())
    return metrics


def layouts(arguments: argparse.Namespace, work: Path, runs: Path, size: Size) -> dict[str, Any]:
    """The table of the measured layouts."""
    prepared = work / "prepared"
    rows = ("tgraph", *BASELINES) if arguments.quick else arguments.models
    reads_kernels = any(ROWS[row].model == "kernel-costs" for row in rows if row in ROWS)
    find_kernels = xla_cpu.find_kernels if reads_kernels else None
    left_out = tpugraphs.prepare(arguments.data, prepared, [LAYOUTS], find_kernels=find_kernels).left_out
    if left_out:
        raise InputError(left_out[0])
    card = json.loads((arguments.data / "card.json").read_text())
    test = [graph.name for graph in read_all_prepared(prepared, LAYOUTS, arguments.split)]
    ceiling = float(np.mean([card["graphs"][name]["retest_tau"] for name in test]))
    jobs = [(row, seed, arguments.split) for row in rows for seed in range(arguments.seeds)]
    data = Data(prepared, LAYOUTS, _digest(sorted((arguments.data / "npz").rglob("*.npz"))))
    metrics_of = _all_runs(jobs, size, data, runs)
    models = {}
    for row in rows:
        seeds = [mean_metrics(list(metrics_of[row, seed, arguments.split].values())) for seed in range(arguments.seeds)]
        models[row] = summarise([metrics | {"share_of_retest": metrics["kendall_tau"] / ceiling} for metrics in seeds])
    columns = ("kendall_tau", "share_of_retest", "slowdown1", "slowdown10")
    title = (
        f"layouts on XLA:CPU, {len(test)} {arguments.split} graphs, retest tau {ceiling:.3f}, {arguments.seeds} seeds"
    )
    _print(title, models, columns)
    taus = {
        row: {
            name: np.mean(
                [metrics_of[row, seed, arguments.split][name]["kendall_tau"] for seed in range(arguments.seeds)]
            ).item()
            for name in test
        }
        for row in rows
    }
    graphs = {
        name: {row: taus[row][name] for row in rows} | {"retest": card["graphs"][name]["retest_tau"]} for name in test
    }
    return {"models": models, "retest_tau": ceiling, "kendall_tau_by_graph": graphs}


def tiles(arguments: argparse.Namespace, work: Path, runs: Path, size: Size) -> dict[str, Any]:
    """The table of the published tiles: each kernel is ranked by models that were trained on the others."""
    prepared = work / "tiles"
    encoded = tpugraphs.encode(arguments.tiles, work / "tiles-npz", "tile")
    list(prepare_files([file.path for file in encoded.files], prepared_folder(prepared, TILES, "train"), []))
    names = [graph.name for graph in read_all_prepared(prepared, TILES, "train")]
    rows = (*TILE_ROWS, *(row for row in BASELINES if row != "fewest constraints"))
    jobs = [(row, seed, name) for row in rows for seed in range(arguments.seeds) for name in names]
    metrics_of = _all_runs(jobs, size, Data(prepared, TILES, _digest([arguments.tiles])), runs)
    models = {}
    for row in rows:
        seeds = [[metrics_of[row, seed, name][name] for name in names] for seed in range(arguments.seeds)]
        models[row] = summarise([mean_metrics(graphs) for graphs in seeds])
    title = f"tiles of {len(names)} TPU kernels, each ranked by models trained on the others"
    _print(title, models, ("score", "kendall_tau", "slowdown1", "slowdown5"))
    return {"models": models, "kernels": len(names)}


def _all_runs(
    jobs: Sequence[tuple[str, int, str]], size: Size, data: Data, runs: Path
) -> dict[tuple[str, int, str], dict[str, dict[str, float]]]:
    metrics_of = {}
    with Bar(console=console, transient=True) as progress:
        bar = progress.add_task(f"training, {data.collection}", total=len(jobs))
        work = joblib.Parallel(n_jobs=joblib.cpu_count(), return_as="generator")
        done = work(joblib.delayed(run)(row, seed, size, data, out, runs) for row, seed, out in jobs)
        for (row, seed, out), metrics in zip(jobs, done, strict=True):
            metrics_of[row, seed, out] = metrics
            tau = mean_metrics(list(metrics.values()))["kendall_tau"]
            if out in SPLITS:
                progress.console.print(f"{row}, seed {seed}: tau {tau:.3f}", highlight=False)
            progress.advance(bar)
    return metrics_of


def _print(title: str, models: Mapping[str, Mapping[str, Mapping[str, float]]], columns: Sequence[str]) -> None:
    table = Table(title=title, title_justify="left")
    for heading in ("model", *columns):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    for row, metrics in models.items():
        table.add_row(row, *(f"{metrics[name]['mean']:.3f} ± {metrics[name]['std']:.3f}" for name in columns))
    console.print(table)


def _runtime(graph: PreparedGraph) -> Any:
    assert graph.runtime is not None, "every graph was measured"
    return graph.runtime


def _digest(files: Sequence[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.read_bytes())
    return digest.hexdigest()


def main() -> None:
    """Prints the tables and writes the JSON."""
    options = parser(__doc__)
    options.add_argument("--data", type=Path, default=XLA, help="what 'tvm-gnn-cost tpugraphs measure' wrote")
    options.add_argument(
        "--tiles", type=Path, help="the data set's op_tuning_data.pb, for the demonstration on TPU tiles"
    )
    every = (*ROWS, *BASELINES)
    options.add_argument(
        "--models", nargs="+", choices=every, default=every, metavar="MODEL", help="rows of the table of layouts"
    )
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--split", choices=("test", "valid"), default="test", help="valid is for choosing settings")
    options.add_argument("--epochs", type=int, default=Size.epochs)
    options.add_argument("--channels", type=int, default=Size.channels)
    options.add_argument("--runs", type=Path, default=WORK / "tpugraphs-accuracy", help="where finished runs are kept")
    arguments = options.parse_args()
    size = Size(1, 16) if arguments.quick else Size(arguments.epochs, arguments.channels)
    arguments.seeds = 1 if arguments.quick else arguments.seeds
    with tempfile.TemporaryDirectory() as work:
        runs = Path(work) / "runs" if arguments.quick else arguments.runs
        metrics = layouts(arguments, Path(work), runs, size)
        if arguments.tiles is not None:
            metrics["tiles_demo"] = tiles(arguments, Path(work), runs, size)
    trained = {*metrics["models"], *metrics.get("tiles_demo", {}).get("models", ())}
    card = json.loads((arguments.data / "card.json").read_text())
    settings = {
        "seeds": arguments.seeds,
        "split": arguments.split,
        **asdict(size),
        "quick": arguments.quick,
        "data_measured_on": card["machine"],
        "training": {row: _training(row, size) for row in ROWS if row in trained},
    }
    write_result(arguments.json, "tpugraphs_accuracy", settings, metrics)


if __name__ == "__main__":
    main()
