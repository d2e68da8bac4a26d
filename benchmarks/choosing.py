"""Which programs of a task to measure: random ones, unlike ones, or those that a first model finds best or doubtful.

Every way gets the same number of measurements of each training task. The measurements were made before, of more random
programs than that; a way chooses among them. The first model has learned from half of the number, drawn at random. All
are tested on networks that no model was trained on. Finished runs are saved, and a saved run is not run again.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import numpy.typing as npt

from common import console, parser, result_name, write_result
from offline import run_offline
from stores import extract_store, measured_on
from trained import Rows, Share, digest_of, of_each_task, one_a_core, saved, settings_of, train_graph_model, train_model
from tvm_gnn_cost import GraphStore
from tvm_gnn_cost.datasets.programs import MeasuredPrograms
from tvm_gnn_cost.datasets.split import Split
from tvm_gnn_cost.evaluation import compare
from tvm_gnn_cost.evaluation.metrics import evaluate
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.training.checkpoint import Scorer
from tvm_gnn_cost.training.pipeline import split_programs
from tvm_gnn_cost.training.scale import Scale

#: Models whose disagreement says which programs are doubtful.
_DOUBTERS = 3


def summaries(programs: MeasuredPrograms) -> npt.NDArray[np.float32]:
    """What a program looks like, for distances: float32[P, 2 V], mean and greatest of its node values, standardised."""
    graphs = programs.graphs
    out = np.zeros((len(graphs), 2 * graphs.values.shape[1]), np.float32)
    for i, (begin, end) in enumerate(zip(graphs.node_offsets[:-1], graphs.node_offsets[1:], strict=True)):
        if end > begin:
            values = graphs.values[begin:end]
            out[i] = np.concatenate([values.mean(0), values.max(0)])
    return Scale.fit([out]).apply(out)


def farthest(points: npt.NDArray[np.float32], count: int, rng: np.random.Generator) -> Rows:
    """Numbers of up to ``count`` points, each the farthest from those before (Gonzalez 1985); the first is drawn."""
    chosen = [int(rng.integers(len(points)))]
    distance = np.full(len(points), np.inf)
    while len(chosen) < min(count, len(points)):
        distance = np.minimum(distance, np.square(points - points[chosen[-1]]).sum(1))
        distance[chosen] = -1
        chosen.append(int(distance.argmax()))
    return np.array(chosen)


def choose(
    way: str, programs: MeasuredPrograms, parts: Split, budget: int, seed: int, epochs: int | None, folder: Path
) -> Split:
    """The split with the programs that a way chooses to measure.

    Args:
        way: A key of the result's ``ways``.
        programs: All programs.
        parts: The split with all that could be measured.
        budget: Programs of each task.
        seed: Of what is drawn and of the first models.
        epochs: Instead of the preset's.
        folder: Folder of an unfinished training.
    """
    rng = np.random.default_rng(seed)

    def some(rows: Rows, count: int) -> Rows:
        return of_each_task(programs, rows, lambda own: rng.permutation(own)[:count])

    validation = some(parts.validation, budget)
    if way == "all":
        return parts
    if way == "random":
        return replace(parts, train=some(parts.train, budget), validation=validation)
    if way == "unlike each other":
        points = summaries(programs)
        unlike = of_each_task(programs, parts.train, lambda own: own[farthest(points[own], budget, rng)])
        return replace(parts, train=unlike, validation=validation)
    first = some(parts.train, budget // 2)
    half = replace(parts, train=first, validation=validation)
    count = _DOUBTERS if way == "doubtful" else 1
    models = [Scorer(train_graph_model("gnn", programs, half, seed + 100 * i, epochs, folder)) for i in range(count)]
    rest = np.setdiff1d(parts.train, first)
    left = programs.select(rest)
    found = np.stack([one.throughput(one.score(left.graphs, left.task)) for one in models])
    worth = np.full(len(programs), -np.inf)
    worth[rest] = found.std(0) if way == "doubtful" else found.mean(0)
    more = of_each_task(programs, rest, lambda own: own[np.argsort(-worth[own])][: budget - budget // 2])
    return replace(parts, train=np.sort(np.concatenate([first, more])), validation=validation)


WAYS = ("all", "random", "unlike each other", "best", "doubtful")
_QUICK_WAYS = ("random", "unlike each other", "doubtful")


def run(
    way: str,
    seed: int,
    store: Path,
    held_out: Sequence[str],
    share: Share,
    budget: int,
    epochs: int | None,
    runs: Path,
) -> tuple[str, dict[str, Any]]:
    """Trains on what a way chooses and tests it, or reads the run that was saved before."""

    def compute(path: Path) -> dict[str, Any]:
        programs = GraphStore(store).load()
        parts = share.of(programs, split_programs(programs, held_out, seed), seed)
        chosen = choose(way, programs, parts, budget, seed, epochs, path.with_suffix(".first"))
        model = train_model("gnn", programs, chosen, seed, epochs, path.with_suffix(".fit"))["gnn"]
        test = programs.select(parts.test)
        found = evaluate(test, *model(test), tuple(held_out))[0]
        return {"train_programs": len(chosen.train), "metrics": found}

    known = [digest_of(store), *held_out, asdict(share), budget, epochs, settings_of("gnn")]
    return way, saved(runs, f"{way}-{seed}", known, compute)


def benchmark(arguments: argparse.Namespace, data: Sequence[Path], stores: Path, finished: Path) -> None:
    """Runs what is missing among the ``finished`` runs on ``data``, prints the table and writes the JSON."""
    held_out, seeds = arguments.held_out, range(arguments.seeds)
    store = extract_store(data, stores, "statements")
    ways = _QUICK_WAYS if arguments.quick else WAYS
    jobs = [(way, seed) for way in ways for seed in seeds]
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    shared = (store, held_out, Share(arguments.share), arguments.budget, arguments.epochs, finished)
    calls = [joblib.delayed(run)(way, seed, *shared) for way, seed in jobs]
    for way, result in one_a_core(calls, arguments.quick):
        runs[way].append(result)
    rows = {way: compare.summarise([one["metrics"] for one in found]) for way, found in runs.items()}
    title = f"{', '.join(held_out)}; {arguments.budget} programs of each training task; {len(seeds)} seeds"
    console.print(compare.table(title, rows))
    settings = {"seeds": list(seeds), "held_out": list(held_out), "budget": arguments.budget, "quick": arguments.quick}
    settings |= {"share_of_tasks": arguments.share, "epochs": arguments.epochs}
    settings["data_measured_on"] = measured_on(data)
    programs = {way: found[0]["train_programs"] for way, found in runs.items()}
    name = result_name("choosing", scheduler().name)
    write_result(arguments.json, name, settings, {"ways": rows, "train_programs": programs})


def main() -> None:
    """Reads the options and runs the benchmark."""
    options = parser(__doc__)
    options.add_argument("--budget", type=int, default=8, help="programs to measure of each training task")
    options.add_argument("--share", type=float, default=1.0, help="share of the training tasks that are measured")
    run_offline(options, "choosing", benchmark)


if __name__ == "__main__":
    main()
