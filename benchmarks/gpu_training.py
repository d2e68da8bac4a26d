"""Trains and scores the network on a GPU and on the CPU of the same machine.

The network alone: XGBoost grows the trees on the CPU. On the programs of FOLDER (see ``cuda_programs.py``): seconds of
an epoch, accuracy on each fold of the tasks after training on the others, and programs per second of scoring. Times are
taken alone; the trainings for the accuracy run at the same time. Finished runs are saved; the same command resumes.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import torch

from common import console, median_seconds, parser, run_saved, table_of, write_result
from cuda_programs import add_options, replayed
from tvm_gnn_cost import GraphStore
from tvm_gnn_cost.datasets.programs import SAMPLED, MeasuredPrograms
from tvm_gnn_cost.datasets.split import Split
from tvm_gnn_cost.evaluation import compare
from tvm_gnn_cost.evaluation.metrics import evaluate
from tvm_gnn_cost.files import write_text
from tvm_gnn_cost.graphs.embedding import train_vectors
from tvm_gnn_cost.measuring.machine import usable_cores
from tvm_gnn_cost.models.topk_gnn import PRESETS
from tvm_gnn_cost.progress import EpochFinished, Event
from tvm_gnn_cost.scoring.checkpoint import Checkpoint
from tvm_gnn_cost.scoring.scorer import Scorer
from tvm_gnn_cost.training.fit import new_checkpoint, preset_settings
from tvm_gnn_cost.training.pipeline import split_programs, train_gnn

#: Lightning's accelerator -> torch's device.
DEVICES = {"gpu": "cuda", "cpu": "cpu"}
#: First epochs whose time does not count.
_WARM_UP = 2
#: Numbers of graphs in a batch of scoring.
_BATCHES = (256, 2048)


def split_of(store: Path, fold: int, seed: int) -> tuple[MeasuredPrograms, Split]:
    """The programs of a store, and their split with a fold held out."""
    programs = GraphStore(store).load()
    return programs, split_programs(programs, (f"fold-{fold}",), seed)


def untrained(store: Path, fold: int, seed: int, finished: Path) -> Path:
    """The model that the trainings of a fold start from; the first call makes it."""
    path = finished / f"untrained-{fold}-{seed}.safetensors"
    if not path.exists():
        programs, parts = split_of(store, fold, seed)
        train, config = programs.select(parts.train).sample(SAMPLED, seed), PRESETS["gnn"]
        vectors = train_vectors(train.graphs.read(), dim=config.type_dim, seed=seed)
        new_checkpoint(config, vectors, train, seed).save(path)
    return path


def _path(name: str, accelerator: str, threads: int, fold: int, seed: int, finished: Path) -> Path:
    """The result of a training; its checkpoint is saved beside it."""
    return finished / f"{name}-{accelerator}-{threads}-{fold}-{seed}.json"


def train(
    store: Path, fold: int, seed: int, accelerator: str, threads: int, epochs: int | None, finished: Path, name: str
) -> dict[str, Any]:
    """Trains on all folds but one, unless the result is saved: seconds of each epoch, and metrics on the fold."""
    path = _path(name, accelerator, threads, fold, seed, finished)
    if not path.exists():
        torch.set_num_threads(threads)
        programs, parts = split_of(store, fold, seed)
        settings = preset_settings("gnn", len(np.unique(programs.task[parts.train])))
        settings = replace(settings, seed=seed, accelerator=accelerator, trees=0, epochs=epochs or settings.epochs)
        times = [time.perf_counter()]

        def show(event: Event) -> None:
            if isinstance(event, EpochFinished):
                times.append(time.perf_counter())

        start, folder = Checkpoint.load(untrained(store, fold, seed, finished)), path.with_suffix(".fit")
        model = train_gnn(programs, parts, PRESETS["gnn"], settings, folder, start, show)
        model.save(path.with_suffix(".safetensors"))
        shutil.rmtree(folder)
        test = programs.select(parts.test)
        metrics, _ = evaluate(test, *compare.gnn(model)(test), (f"fold-{fold}",))
        result = {"metrics": metrics, "epoch_s": np.diff(times).tolist(), "epochs": len(times) - 1}
        write_text(path, json.dumps(result))
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def scoring(store: Path, checkpoint: Path, devices: Sequence[str], repeats: int) -> dict[str, Any]:
    """Programs per second of each device and batch size, and the largest difference of a score from the CPU's."""
    programs = GraphStore(store).load()
    network = replace(Checkpoint.load(checkpoint), trees=None)
    expected = Scorer(network).score(programs.graphs, programs.task)
    out: dict[str, Any] = {"programs": len(programs), "deviation_of_scores": float(expected.std())}
    for device in devices:
        scorer = Scorer(network, device)
        found = scorer.score(programs.graphs, programs.task)
        out[device] = {"difference": float(np.abs(found - expected).max())}
        for size in _BATCHES:
            seconds = median_seconds(lambda s=scorer, n=size: s.score(programs.graphs, programs.task, n), repeats)  # type: ignore[misc]
            out[device][f"{size}_at_once"] = len(programs) / seconds
    return out


def benchmark(arguments: argparse.Namespace, finished: Path) -> None:
    """Runs what is missing in the folder ``finished``, prints the tables and writes the JSON."""
    (store, _), cores = replayed(arguments, finished), usable_cores()
    trained_on = arguments.accelerators if arguments.accuracy_of is None else arguments.accuracy_of
    folds, seeds = range(arguments.folds), range(arguments.seeds)
    for fold in folds:
        for seed in seeds:
            untrained(store, fold, seed, finished)
    settings = {"seeds": list(seeds), "folds": arguments.folds, "epochs": arguments.epochs, "cores": cores}
    settings |= {"programs_per_task": arguments.programs_per_task, "folder": arguments.folder.resolve().name}
    settings["gpu"] = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    metrics: dict[str, Any] = {"scoring": {}, "epoch_s": {}, "models": {}}

    def save() -> None:
        write_result(arguments.json, "gpu_training", settings, metrics)

    ways = [(accelerator, threads) for accelerator in arguments.accelerators for threads in dict.fromkeys((cores, 1))]
    for accelerator, threads in ways:
        timed = train(store, 0, 0, accelerator, threads, _WARM_UP + arguments.repeats, finished, "timed")
        metrics["epoch_s"][f"{accelerator}, {threads} threads"] = timed["epoch_s"][_WARM_UP:]
    devices = [DEVICES[accelerator] for accelerator in arguments.accelerators]
    torch.set_num_threads(cores)
    trained_here = _path("timed", *ways[0], 0, 0, finished).with_suffix(".safetensors")
    metrics["scoring"] = scoring(store, trained_here, devices, arguments.repeats)
    save()
    jobs = [(fold, seed, accelerator) for accelerator in trained_on for seed in seeds for fold in folds]
    at_once = max(1, min(len(jobs), cores))
    work = joblib.Parallel(n_jobs=at_once, return_as="generator")
    rest = max(1, cores // at_once), arguments.epochs, finished, "trained"
    trained = work(joblib.delayed(train)(store, *job, *rest) for job in jobs)
    runs: dict[str, dict[int, list[dict[str, float]]]] = {}
    for (_, seed, accelerator), result in zip(jobs, trained, strict=True):
        runs.setdefault(accelerator, {}).setdefault(seed, []).append(result["metrics"])
        means = {
            name: [{key: float(np.mean([one[key] for one in folds])) for key in folds[0]} for folds in own.values()]
            for name, own in runs.items()
        }
        metrics["models"] = {name: compare.summarise(rows) for name, rows in means.items()}
        save()
    if metrics["models"]:
        console.print(compare.table("accuracy", metrics["models"]))
    rows = [(way, f"{statistics.median(seconds):#.3g}") for way, seconds in metrics["epoch_s"].items()]
    console.print(table_of("training", ("device", "seconds per epoch"), rows))
    console.print(metrics["scoring"])


def main() -> None:
    """Reads the options and runs the benchmark."""
    options = parser(__doc__)
    add_options(options)
    options.add_argument("--accelerators", nargs="+", choices=DEVICES, default=list(DEVICES))
    options.add_argument("--accuracy-of", nargs="*", choices=DEVICES, help="accelerators that train on every fold")
    options.add_argument("--seeds", type=int, default=1)
    options.add_argument("--repeats", type=int, default=8, help="number of epochs and of scorings that are timed")
    run_saved(options, "gpu_training", benchmark, epochs=1, folds=2, programs_per_task=8, repeats=1)


if __name__ == "__main__":
    main()
