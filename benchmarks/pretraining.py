"""What costs no measurement: programs that nobody measured, and an analytic draft of the latency.

``alone`` learns from measured programs only. ``draft as input`` also reads the draft, ``draft corrected`` learns what
the draft gets wrong (``draft.py``). ``hidden values`` first learns to tell hidden node values of sampled programs.
``teachers`` first learns what several models, trained on the measured programs, predict for sampled ones; this also
puts an ensemble into one model. Sampling schedules costs no run. Finished runs are saved, and a saved run is not run
again.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np

from common import console, parser, result_name, write_result
from draft import as_input, draft, without_draft
from masked_values import learn_hidden_values
from offline import run_offline
from stores import extract_store, measured_on
from trained import Share, digest_of, one_a_core, saved, settings_of, train_graph_model
from tvm_gnn_cost import Checkpoint, GraphStore
from tvm_gnn_cost.datasets.programs import MeasuredPrograms
from tvm_gnn_cost.datasets.split import Split
from tvm_gnn_cost.evaluation import compare
from tvm_gnn_cost.evaluation.metrics import evaluate
from tvm_gnn_cost.graphs.embedding import train_vectors
from tvm_gnn_cost.models.topk_gnn import PRESETS
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.training.checkpoint import Scorer
from tvm_gnn_cost.training.fit import PRESET_SETTINGS, fit, new_checkpoint
from tvm_gnn_cost.training.pipeline import split_programs
from unlabelled import sample_unlabelled

WAYS = ("alone", "draft as input", "draft corrected", "hidden values", "teachers")
#: Passes over the sampled programs.
_EPOCHS = 4


def in_two(programs: MeasuredPrograms, seed: int) -> tuple[MeasuredPrograms, MeasuredPrograms]:
    """Programs to learn from, and those of a twentieth of the tasks, at least one, to validate on."""
    tasks = np.random.default_rng(seed).permutation(len(programs.tasks))
    chosen = np.isin(programs.task, tasks[: max(1, len(tasks) // 20)])
    return programs.select(np.flatnonzero(~chosen)), programs.select(np.flatnonzero(chosen))


def taught(programs: MeasuredPrograms, teachers: Sequence[Checkpoint]) -> MeasuredPrograms:
    """Sampled programs with the mean of the throughputs that models predict, as latencies that have these ratios."""
    scorers = [Scorer(teacher) for teacher in teachers]
    predicted = [one.throughput(one.score(programs.graphs, programs.task)) for one in scorers]
    return replace(programs, latency=1e-3 / np.mean(predicted, axis=0).clip(1e-6))


def start_of(
    way: str,
    programs: MeasuredPrograms,
    parts: Split,
    sampled: Path,
    seed: int,
    teachers: int,
    epochs: int | None,
    passes: int,
    folder: Path,
) -> Checkpoint | None:
    """The model with which training on measured programs starts; None for a new one.

    Args:
        way: One of :data:`WAYS`.
        programs: The measured programs.
        parts: What of them to train, validate and test on.
        sampled: The store of the programs that nobody measured.
        seed: Of the weights and of what is drawn.
        teachers: Number of models that teach.
        epochs: Instead of the preset's.
        passes: Passes over the sampled programs.
        folder: Folder of unfinished trainings.
    """
    if way not in ("hidden values", "teachers"):
        return None
    unlabelled = GraphStore(sampled).load()
    config = PRESETS["gnn"]
    settings = replace(PRESET_SETTINGS["gnn"], epochs=passes, patience=passes, trees=0, seed=seed, calibrated=False)
    # What comes of no measurement says nothing of seconds.
    settings = replace(settings, latency_weight=0.0)
    train = programs.select(parts.train)
    new = new_checkpoint(config, train_vectors(train.graphs, dim=config.type_dim, seed=seed), train, seed)
    if way == "hidden values":
        return learn_hidden_values(new, *in_two(unlabelled, seed), settings, folder / "hidden")
    models = [
        train_graph_model("gnn", programs, parts, seed + 100 * (1 + i), epochs, folder / f"teacher-{i}")
        for i in range(teachers)
    ]
    return fit(new, *in_two(taught(unlabelled, models), seed), settings, folder / "taught")


def run(
    way: str,
    seed: int,
    store: Path,
    sampled: Path,
    teachers: int,
    held_out: Sequence[str],
    share: Share,
    epochs: int | None,
    passes: int,
    runs: Path,
) -> tuple[str, dict[str, Any]]:
    """Trains one way and tests the model, or reads the run that was saved before."""

    def compute(path: Path) -> dict[str, Any]:
        programs = GraphStore(store).load()
        if way == "draft as input":
            programs = as_input(programs)
        parts = share.of(programs, split_programs(programs, held_out, seed), seed)
        start = start_of(way, programs, parts, sampled, seed, teachers, epochs, passes, path.with_suffix(".start"))
        learned = without_draft(programs) if way == "draft corrected" else programs
        trained = train_graph_model("gnn", learned, parts, seed, epochs, path.with_suffix(".fit"), start)
        test = programs.select(parts.test)
        scores, predicted = compare.gnn(trained)(test)
        if way == "draft corrected":
            scores = np.log(predicted) - np.log(draft(test.graphs))
            best = np.full(len(test.tasks), -np.inf)
            np.maximum.at(best, test.task, scores)
            predicted = np.exp(scores - best[test.task])
        return evaluate(test, scores, predicted, tuple(held_out))[0]

    known = [
        digest_of(store),
        digest_of(sampled),
        teachers,
        epochs,
        passes,
        asdict(share),
        settings_of("gnn"),
        *held_out,
    ]
    return way, saved(runs, f"{way}-{seed}", known, compute)


def benchmark(arguments: argparse.Namespace, data: Sequence[Path], stores: Path, finished: Path) -> None:
    """Runs what is missing among the ``finished`` runs on ``data``, prints the table and writes the JSON."""
    held_out, seeds = arguments.held_out, range(arguments.seeds)
    store = extract_store(data, stores, "statements")
    sampled = stores / "unlabelled"
    sample_unlabelled(sampled, 4 if arguments.quick else arguments.programs_a_task, arguments.minutes)
    count = sum(map(len, GraphStore(sampled).iterate(4096)))
    teachers = 1 if arguments.quick else arguments.teachers
    passes = 1 if arguments.quick else _EPOCHS
    shared = (store, sampled, teachers, held_out, Share(arguments.share), arguments.epochs, passes, finished)
    calls = [joblib.delayed(run)(way, seed, *shared) for way in WAYS for seed in seeds]
    runs: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    for way, metrics in one_a_core(calls, arguments.quick):
        runs[way].append(metrics)
    rows = {way: compare.summarise(found) for way, found in runs.items()}
    console.print(compare.table(f"{', '.join(held_out)}; {count} sampled programs; {len(seeds)} seeds", rows))
    settings = {"seeds": list(seeds), "held_out": list(held_out), "quick": arguments.quick, "teachers": teachers}
    settings |= {"share_of_tasks": arguments.share, "epochs": arguments.epochs}
    settings |= {"sampled_programs": count, "data_measured_on": measured_on(data)}
    write_result(arguments.json, result_name("pretraining", scheduler().name), settings, {"ways": rows})


def main() -> None:
    """Reads the options and runs the benchmark."""
    options = parser(__doc__)
    options.add_argument(
        "--minutes", type=float, default=0, help="sample more programs for so long, one shard at least"
    )
    options.add_argument("--programs-a-task", type=int, default=32)
    options.add_argument("--teachers", type=int, default=4, help="models whose mean prediction is learned")
    options.add_argument("--share", type=float, default=1.0, help="share of the training tasks that are learned from")
    run_offline(options, "pretraining", benchmark)


if __name__ == "__main__":
    main()
