"""Trains and tests models in parallel; finished runs are saved and not repeated."""

from __future__ import annotations

import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from tvm_gnn_cost.datasets.records import find_file, open_file
from tvm_gnn_cost.datasets.split import Split, networks_named
from tvm_gnn_cost.evaluation import compare
from tvm_gnn_cost.evaluation.metrics import evaluate
from tvm_gnn_cost.files import write_text
from tvm_gnn_cost.graphs.processor import processor_of
from tvm_gnn_cost.models.topk_gnn import PRESETS, TopKGNNConfig
from tvm_gnn_cost.schedulers import package
from tvm_gnn_cost.scoring.checkpoint import Checkpoint
from tvm_gnn_cost.scoring.cost_model import CostModel
from tvm_gnn_cost.training.fit import PRESET_SETTINGS, preset_settings
from tvm_gnn_cost.training.pipeline import split_programs, train_gnn, train_xgb

#: Without the features of the target's processor.
WITHOUT_TARGET = "without target"
#: Groups of node features, each added to the node types alone; the default model has all of them.
_GROUPS = ("constant", "dtype", "loop", "access", "work")
ABLATIONS: dict[str, tuple[str, ...]] = {
    "types only": (),
    **{f"types + {group}": (group,) for group in _GROUPS},
    WITHOUT_TARGET: _GROUPS,
}
#: Without the features of GPU programs.
WITHOUT_GPU = "without gpu"

BASELINES = ("xgb", "mlp", "node-count", "constant", "random")
#: MetaSchedule's XGBModel, trained on programs with any number of stores.
XGB_OF_ALL = "xgb of all"

#: Ablations: the two parts of the default model.
ALONE = ("network alone", "trees alone")

#: Row numbers of programs, int64[n].
Rows = npt.NDArray[np.int64]


def rows_of_networks(programs: MeasuredPrograms, rows: Rows, networks: Sequence[str]) -> Rows:
    """The rows whose task occurs in one of the networks; the test split also has their workloads of other data."""
    of_networks = np.array([any(networks_named(name, task.weights) for name in networks) for task in programs.tasks])
    selected: Rows = rows[of_networks[programs.task[rows]]]
    return selected


def part_of_each(programs: MeasuredPrograms, data: Sequence[Path]) -> npt.NDArray[np.str_]:
    """The processor that each program was measured on, and the design space if it is TVM's: str[P].

    Args:
        programs: The programs.
        data: The folders that they come from.
    """
    of_tvm = {task for folder in data for task in _tasks_of_tvm(folder)}
    processors = [processor_of(task.target).name for task in programs.tasks]
    names = [
        f"{processor}, TVM's design space" if (task.hash, processor) in of_tvm else processor
        for task, processor in zip(programs.tasks, processors, strict=True)
    ]
    return np.array(names)[programs.task]


def _tasks_of_tvm(folder: Path) -> Iterator[tuple[str, str]]:
    """Hash and processor of the tasks of a folder with programs of TVM's design space."""
    card = find_file(folder, "card.json")
    if card is None or (about := json.loads(card.read_text())).get("space") != "tvm":
        return
    tasks = find_file(folder, "tasks.jsonl")
    assert tasks is not None, f"{folder} has no tasks"
    processor = processor_of(json.dumps(about["target"])).name
    with open_file(tasks) as lines:
        for line in lines:
            yield json.loads(line)["hash"], processor


@dataclass(frozen=True)
class Share:
    """The share of the training and validation programs that a model learns from.

    Attributes:
        tasks: Share of their tasks, in (0, 1].
        programs_per_task: Maximum number of programs of a task; None for all.
    """

    tasks: float = 1.0
    programs_per_task: int | None = None

    def of(self, programs: MeasuredPrograms, parts: Split, seed: int) -> Split:
        """The split with this share of its training and validation; a smaller share is part of a larger one."""
        return Split(self._some(programs, parts.train, seed), self._some(programs, parts.validation, seed), parts.test)

    def _some(self, programs: MeasuredPrograms, rows: Rows, seed: int) -> Rows:
        rng = np.random.default_rng(seed)
        # One workload may have been measured on several processors.
        workload = np.array([task.hash for task in programs.tasks])[programs.task]
        workloads = rng.permutation(np.unique(workload[rows]))
        kept = workloads[: max(1, round(self.tasks * len(workloads)))]
        rows = rows[np.isin(workload[rows], kept)]
        tasks = programs.task[rows]
        few = [rng.permutation(rows[tasks == task])[: self.programs_per_task] for task in np.unique(tasks).tolist()]
        return np.sort(np.concatenate(few))


def train_model(
    name: str,
    programs: MeasuredPrograms,
    parts: Split,
    seed: int,
    epochs: int | None,
    folder: Path,
    start: Checkpoint | None = None,
) -> dict[str, compare.Model]:
    """The model of a row of the table, trained with a seed; also the models of :data:`ALONE` if it has both parts.

    Args:
        name: A preset of the graph model, a key of :data:`ABLATIONS` or one of :data:`BASELINES`.
        programs: All programs.
        parts: Their split.
        seed: Of the weights and the batches.
        epochs: Replaces that of the preset; the number of trees changes in proportion.
        folder: Folder of an unfinished training; the checkpoint of a graph model is saved next to it.
        start: Checkpoint that a graph model starts from.

    Returns:
        Name -> model.
    """
    if name == "xgb":
        return {name: compare.trained_xgb(train_xgb(package().XGBBaseline(seed), programs, parts))}
    if name == XGB_OF_ALL:
        return {name: compare.trained_xgb(train_xgb(package().XGBBaseline(seed, sys.maxsize), programs, parts))}
    if name in BASELINES:
        rows = np.concatenate([parts.train, parts.validation])
        mean = float(programs.throughput()[rows].mean())
        if name == "mlp":
            from tvm_gnn_cost.schedulers.mlp_baseline import mlp_baseline

            mlp = mlp_baseline(seed)
            mlp.fit(programs.select(rows))
            return {name: compare.trained_mlp(mlp, mean)}
        simple: dict[str, Callable[[], compare.Model]] = {
            "node-count": lambda: compare.node_count(mean),
            "constant": lambda: compare.constant(mean),
            "random": lambda: compare.random(seed),
        }
        return {name: simple[name]()}
    train_tasks = len(np.unique(programs.task[parts.train]))
    settings = replace(preset_settings(_preset(name), train_tasks, start is not None), seed=seed)
    if epochs is not None:
        settings = replace(settings, epochs=epochs, trees=settings.trees * epochs // settings.epochs)
    model = train_gnn(programs, parts, _config(name), settings, folder, start)
    shutil.rmtree(folder)
    model.save(folder.with_suffix(".safetensors"))
    models = {name: compare.gnn(model)}
    if model.scorer.trees is not None:
        network, trees = ALONE
        without = CostModel(replace(model.checkpoint, trees=None))
        models |= {network: compare.gnn(without), trees: compare.trees(model)}
    return models


@dataclass(frozen=True)
class Job:
    """A model to train and test.

    Attributes:
        name: Of the model, see :func:`train_model`.
        seed: Also of the validation tasks and the share.
        store: Graph store of the measured programs.
        share: What the model learns from.
        data: The folders that the programs of the store come from.
    """

    name: str
    seed: int
    store: Path
    share: Share = Share()
    data: tuple[Path, ...] = ()


def run_all(
    jobs: Sequence[Job], held_out: Sequence[str], epochs: int | None, quick: bool, runs: Path
) -> Iterator[tuple[Job, dict[str, Any]]]:
    """Runs the jobs that are not saved in the folder ``runs``, one per core, and yields each when it is done.

    Args:
        jobs: The jobs.
        held_out: The networks to test on.
        epochs: Of graph models; replaces that of the preset.
        quick: Whether to run in this process, because starting one takes longer than the training.
        runs: Folder of the saved runs.

    Yields:
        The job and its result: the metrics of ``all`` and of each network; ``processors``, the metrics by processor
        and design space; ``alone``, the same for each of :data:`ALONE`; ``train_tasks`` and ``train_programs``,
        including validation.
    """
    for job, result in one_a_core([joblib.delayed(_run)(job, held_out, epochs, runs) for job in jobs], quick):
        accuracy = result["all"]["pairwise_accuracy"]
        about = f"{job.name}, seed {job.seed}, {result['train_programs']} programs"
        console.print(f"{about}: pairwise accuracy {accuracy:.3f}", highlight=False)
        yield job, result


def one_a_core(calls: Sequence[Any], quick: bool) -> Iterator[Any]:
    """Yields the result of each delayed call of joblib when it is done."""
    with Progress(console=console, transient=True) as progress:
        work = joblib.Parallel(n_jobs=1 if quick else joblib.cpu_count(), return_as="generator_unordered")
        yield from progress.track(work(calls), total=len(calls), description="training")


def saved_path(runs: Path, name: str, key: Sequence[Any]) -> Path:
    """Where the result of a run is saved.

    Args:
        runs: Folder of the saved runs.
        name: Prefix of the file's name.
        key: Everything that the result depends on, as JSON.
    """
    return runs / f"{name.replace(' ', '-')}-{hashlib.sha256(json.dumps(key).encode()).hexdigest()[:12]}.json"


def saved(path: Path, compute: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """The result of a run, which is computed, with ``path`` as argument, unless it was saved there."""
    if not path.exists():
        torch.set_num_threads(1)  # one run per core: for a small model, two threads are hardly faster than one
        write_text(path, json.dumps(compute(path)))
    result: dict[str, Any] = json.loads(path.read_text())
    return result


def _run(job: Job, held_out: Sequence[str], epochs: int | None, runs: Path) -> tuple[Job, dict[str, Any]]:
    is_ours = job.name not in (*BASELINES, XGB_OF_ALL)
    ours = [epochs, settings_of(job.name)] if is_ours else [None, None]
    key = [asdict(job.share), *ours, digest_of(job.store), *held_out]

    def compute(path: Path) -> dict[str, Any]:
        programs = GraphStore(job.store).load(with_features=True)
        parts = job.share.of(programs, split_programs(programs, held_out, job.seed), job.seed)
        models = train_model(job.name, programs, parts, job.seed, epochs, path.with_suffix(".fit"))
        return result_of(models, programs, parts, held_out, job.data)

    return job, saved(saved_path(runs, f"{job.name}-{job.seed}", key), compute)


def result_of(
    models: Mapping[str, compare.Model],
    programs: MeasuredPrograms,
    parts: Split,
    held_out: Sequence[str],
    data: Sequence[Path],
) -> dict[str, Any]:
    """The result of a trained model, as :func:`run_all` describes it.

    Args:
        models: The model, and after it those of :data:`ALONE`, see :func:`train_model`.
        programs: All programs.
        parts: What it learned from and, of the last part, the programs of held-out networks that it is tested on.
        held_out: The networks to test on.
        data: The folders that the programs come from.
    """
    test = programs.select(rows_of_networks(programs, parts.test, held_out))
    learned = programs.task[np.concatenate([parts.train, parts.validation])]
    part_of = part_of_each(test, data)
    results = {name: _tested(model, test, held_out, part_of) for name, model in models.items()}
    counts = {"train_tasks": len(np.unique(learned)), "train_programs": len(learned)}
    return results.pop(next(iter(models))) | {"alone": results} | counts


def _tested(
    model: compare.Model, test: MeasuredPrograms, held_out: Sequence[str], part_of: npt.NDArray[np.str_]
) -> dict[str, Any]:
    """The metrics of all networks together, of each that occurs, and of each part of :func:`part_of_each`."""
    scores, predicted = model(test)
    result: dict[str, Any] = {"all": evaluate(test, scores, predicted, tuple(held_out))[0], "processors": {}}
    present = [network for network in held_out if networks_named(network, test.networks)]
    result |= {network: evaluate(test, scores, predicted, (network,))[0] for network in present}
    for name in np.unique(part_of).tolist():
        rows = np.flatnonzero(part_of == name)
        result["processors"][name] = evaluate(test.select(rows), scores[rows], predicted[rows], tuple(held_out))[0]
    return result


def settings_of(name: str) -> list[Any]:
    """Architecture and training settings of a graph model, as JSON."""
    return [asdict(_config(name)), asdict(PRESET_SETTINGS[_preset(name)])]


def _config(name: str) -> TopKGNNConfig:
    config = PRESETS[_preset(name)]
    groups = ABLATIONS | {WITHOUT_GPU: (*_GROUPS, "target")}
    return replace(config, groups=groups.get(name, config.groups))


def _preset(name: str) -> str:
    """The preset of a model or ablation."""
    return name if name in PRESETS else "gnn"


def digest_of(store: Path) -> str:
    """A digest of the content of a store."""
    digest = hashlib.sha256()
    for shard in GraphStore(store).shards():
        digest.update(shard.read_bytes())
    return digest.hexdigest()
