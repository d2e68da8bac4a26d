"""Trains and tests models; a finished run is saved at once, and a saved run is not run again."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import numpy.typing as npt
import torch
from rich.progress import Progress

from common import console
from tvm_gnn_cost import GraphStore
from tvm_gnn_cost.datasets.programs import MeasuredPrograms
from tvm_gnn_cost.datasets.split import Split, networks_named
from tvm_gnn_cost.evaluation import compare
from tvm_gnn_cost.evaluation.metrics import evaluate
from tvm_gnn_cost.files import write_text
from tvm_gnn_cost.graphs.processor import processor_of
from tvm_gnn_cost.models.topk_gnn import PRESETS, TopKGNNConfig
from tvm_gnn_cost.schedulers import package
from tvm_gnn_cost.training.fit import PRESET_SETTINGS, preset_settings
from tvm_gnn_cost.training.pipeline import split_programs, train_gnn, train_xgb

#: Without what a target tells of its processor.
WITHOUT_TARGET = "without target"
#: The groups of node values, each added to the bare tree alone; the default model has them all.
_GROUPS = ("constant", "dtype", "loop", "access", "work")
ABLATIONS: dict[str, tuple[str, ...]] = {
    "types only": (),
    **{f"types + {group}": (group,) for group in _GROUPS},
    WITHOUT_TARGET: _GROUPS,
}
#: Without what programs of a GPU have and others have not.
WITHOUT_GPU = "without gpu"

BASELINES = ("xgb", "mlp", "node-count", "constant", "random")
#: MetaSchedule's XGBModel, trained on programs of any number of stores.
XGB_OF_ALL = "xgb of all"

#: The two parts of the default model, each by itself.
ALONE = ("network alone", "trees alone")

#: Numbers of programs, int64[n].
Rows = npt.NDArray[np.int64]


def rows_of_networks(programs: MeasuredPrograms, rows: Rows, networks: Sequence[str]) -> Rows:
    """The rows whose task occurs in one of the networks: the part to test on has their workloads of other data too."""
    of_networks = np.array([any(networks_named(name, task.weights) for name in networks) for task in programs.tasks])
    found: Rows = rows[of_networks[programs.task[rows]]]
    return found


def processor_of_each(programs: MeasuredPrograms) -> npt.NDArray[np.str_]:
    """The name of the processor that each program was measured on, as its target has it."""
    return np.array([processor_of(task.target).name for task in programs.tasks])[programs.task]


@dataclass(frozen=True)
class Share:
    """How much of the training and validation programs a model learns from.

    Attributes:
        tasks: Share of their tasks, in (0, 1].
        programs_per_task: Largest number of programs of a task; None for all.
    """

    tasks: float = 1.0
    programs_per_task: int | None = None

    def of(self, programs: MeasuredPrograms, parts: Split, seed: int) -> Split:
        """The split with this share of each part that is learned from; a smaller share is a part of a larger one."""
        return Split(self._some(programs, parts.train, seed), self._some(programs, parts.validation, seed), parts.test)

    def _some(self, programs: MeasuredPrograms, rows: Rows, seed: int) -> Rows:
        rng = np.random.default_rng(seed)
        # A workload that was measured on several processors counts once.
        workload = np.array([task.hash for task in programs.tasks])[programs.task]
        workloads = rng.permutation(np.unique(workload[rows]))
        kept = workloads[: max(1, round(self.tasks * len(workloads)))]
        rows = rows[np.isin(workload[rows], kept)]
        tasks = programs.task[rows]
        few = [rng.permutation(rows[tasks == task])[: self.programs_per_task] for task in np.unique(tasks).tolist()]
        return np.sort(np.concatenate(few))


def train_model(
    name: str, programs: MeasuredPrograms, parts: Split, seed: int, epochs: int | None, folder: Path
) -> dict[str, compare.Model]:
    """The model of a row of the table, trained with a seed, by its name; beside it :data:`ALONE`, if it has both parts.

    Args:
        name: A preset of the graph model, a key of :data:`ABLATIONS` or one of :data:`BASELINES`.
        programs: All programs.
        parts: What to train, validate and test on.
        seed: Of the weights and of what is drawn.
        epochs: Instead of the preset's, with as many fewer trees.
        folder: Folder of an unfinished training; a graph model's checkpoint is kept beside it.
    """
    if name == "xgb":
        return {name: compare.trained_xgb(train_xgb(package().OfflineTrees(seed), programs, parts))}
    if name == XGB_OF_ALL:
        return {name: compare.trained_xgb(train_xgb(package().OfflineTrees(seed, sys.maxsize), programs, parts))}
    if name in BASELINES:
        rows = np.concatenate([parts.train, parts.validation])
        mean = float(programs.throughput()[rows].mean())
        if name == "mlp":
            from tvm_gnn_cost.schedulers.segment_mlp import segment_mlp

            mlp = segment_mlp(seed)
            mlp.fit(programs.select(rows))
            return {name: compare.trained_mlp(mlp, mean)}
        simple: dict[str, Callable[[], compare.Model]] = {
            "node-count": lambda: compare.node_count(mean),
            "constant": lambda: compare.constant(mean),
            "random": lambda: compare.random(seed),
        }
        return {name: simple[name]()}
    train_tasks = len(np.unique(programs.task[parts.train]))
    settings = replace(preset_settings(_preset(name), train_tasks), seed=seed)
    if epochs is not None:
        settings = replace(settings, epochs=epochs, trees=settings.trees * epochs // settings.epochs)
    checkpoint = train_gnn(programs, parts, _config(name), settings, folder)
    shutil.rmtree(folder)
    checkpoint.save(folder.with_suffix(".safetensors"))
    models = {name: compare.gnn(checkpoint)}
    if checkpoint.trees is not None:
        network, trees = ALONE
        models |= {network: compare.gnn(replace(checkpoint, trees=None)), trees: compare.trees(checkpoint)}
    return models


@dataclass(frozen=True)
class Job:
    """One model to train and to test.

    Attributes:
        name: The model, see :func:`train_model`.
        seed: Also draws the validation tasks, and the share.
        store: The measured programs.
        share: How much of them it learns from.
    """

    name: str
    seed: int
    store: Path
    share: Share = Share()


def run_all(
    jobs: Sequence[Job], held_out: Sequence[str], epochs: int | None, quick: bool, runs: Path
) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Runs the jobs that are not saved in the folder ``runs``, one a core, and yields each job when it is done.

    Args:
        jobs: The jobs.
        held_out: The networks that the models are tested on.
        epochs: Of graph models, instead of the preset's.
        quick: Whether the trainings are so short that they start no processes.
        runs: Folder of the saved runs.

    Yields:
        The job, and ``all`` and each network -> its metrics; ``processors``, of each processor that was measured on;
        ``alone``, each of :data:`ALONE` -> all these metrics; ``train_tasks`` and ``train_programs``, which count
        validation too.
    """
    for job, result in one_a_core([joblib.delayed(_run)(job, held_out, epochs, runs) for job in jobs], quick):
        accuracy = result["all"]["pairwise_accuracy"]
        about = f"{job.name}, seed {job.seed}, {result['train_programs']} programs"
        console.print(f"{about}: pairwise accuracy {accuracy:.3f}", highlight=False)
        yield job, result


def one_a_core(calls: Sequence[Any], quick: bool) -> Iterator[Any]:
    """Yields what each of joblib's delayed calls returns, as soon as it is there; a quick run starts no processes."""
    with Progress(console=console, transient=True) as progress:
        # Starting a worker takes longer than a quick training.
        work = joblib.Parallel(n_jobs=1 if quick else joblib.cpu_count(), return_as="generator_unordered")
        yield from progress.track(work(calls), total=len(calls), description="training")


def saved(runs: Path, name: str, known: Sequence[Any], compute: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """What a run found; it is computed unless a run with this name and all that is ``known`` of it was saved.

    Args:
        runs: Folder of the saved runs.
        name: Begins the name of the run's file.
        known: What the result depends on, as JSON can hold it.
        compute: Gets the run's file, to name unfinished work after it.
    """
    path = runs / f"{name.replace(' ', '-')}-{hashlib.sha256(json.dumps(known).encode()).hexdigest()[:12]}.json"
    if not path.exists():
        torch.set_num_threads(1)  # a run a core: two threads on one small model are hardly faster than one
        write_text(path, json.dumps(compute(path)))
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _run(job: Job, held_out: Sequence[str], epochs: int | None, runs: Path) -> tuple[Job, dict[str, Any]]:
    is_ours = job.name not in (*BASELINES, XGB_OF_ALL)
    # A baseline has no epochs of ours.
    ours = [epochs, settings_of(job.name)] if is_ours else [None, None]
    known = [asdict(job.share), *ours, digest_of(job.store), *held_out]

    def compute(path: Path) -> dict[str, Any]:
        programs = GraphStore(job.store).load(with_features=True)
        parts = job.share.of(programs, split_programs(programs, held_out, job.seed), job.seed)
        models = train_model(job.name, programs, parts, job.seed, epochs, path.with_suffix(".fit"))
        test = programs.select(rows_of_networks(programs, parts.test, held_out))
        learned = programs.task[np.concatenate([parts.train, parts.validation])]
        found = {name: _tested(model, test, held_out) for name, model in models.items()}
        counts = {"train_tasks": len(np.unique(learned)), "train_programs": len(learned)}
        return found.pop(job.name) | {"alone": found} | counts

    return job, saved(runs, f"{job.name}-{job.seed}", known, compute)


def _tested(model: compare.Model, test: MeasuredPrograms, held_out: Sequence[str]) -> dict[str, Any]:
    """The metrics of all networks together, of each, and of each processor."""
    scores, predicted = model(test)
    result: dict[str, Any] = {"all": evaluate(test, scores, predicted, tuple(held_out))[0], "processors": {}}
    result |= {network: evaluate(test, scores, predicted, (network,))[0] for network in held_out}
    processors = processor_of_each(test)
    for name in np.unique(processors).tolist():
        own = np.flatnonzero(processors == name)
        found = evaluate(test.select(own), scores[own], predicted[own], tuple(held_out))[0]
        result["processors"][name] = found
    return result


def settings_of(name: str) -> list[Any]:
    """Architecture and training of a graph model, as JSON can hold them: a run belongs to these."""
    return [asdict(_config(name)), asdict(PRESET_SETTINGS[_preset(name)])]


def _config(name: str) -> TopKGNNConfig:
    config = PRESETS[_preset(name)]
    groups = ABLATIONS | {WITHOUT_GPU: (*_GROUPS, "target")}
    return replace(config, groups=groups.get(name, config.groups))


def _preset(name: str) -> str:
    """The preset that a row of the table is a variant of."""
    return name if name in PRESETS else "gnn"


def digest_of(store: Path) -> str:
    """Of all that the store holds: a run belongs to the graphs that it was trained on."""
    digest = hashlib.sha256()
    for shard in GraphStore(store).shards():
        digest.update(shard.read_bytes())
    return digest.hexdigest()
