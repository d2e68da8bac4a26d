"""Trains a graph model on measured programs with Lightning."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import lightning
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tvm_gnn_cost.datasets.programs import MeasuredPrograms
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.batch import GraphBatch
from tvm_gnn_cost.graphs.embedding import NodeTypeVectors
from tvm_gnn_cost.graphs.store_rows import store_rows
from tvm_gnn_cost.graphs.values import VALUES, columns
from tvm_gnn_cost.models.store_trees import StoreTrees, grow_trees
from tvm_gnn_cost.models.topk_gnn import TopKGNN, TopKGNNConfig
from tvm_gnn_cost.progress import EpochFinished, Progress, Stage, ignore
from tvm_gnn_cost.training.calibration import calibrate, spread
from tvm_gnn_cost.training.checkpoint import Checkpoint, Scorer
from tvm_gnn_cost.training.loop import EpochSteps, run
from tvm_gnn_cost.training.losses import combine, latency_error, pairwise_error
from tvm_gnn_cost.training.scale import Scale
from tvm_gnn_cost.training.tensor_file import with_prefix


@dataclass(frozen=True)
class FitSettings:
    """Settings of a training.

    Attributes:
        loss: One of ``losses.LOSSES``, or several joined by ``+``.
        latency_weight: Weight of the error of the predicted latency in the loss, for a model that predicts one.
        epochs: Largest number of passes over the tasks.
        trees: Number of boosted trees (``models.store_trees``) that score beside the network; 0 for none.
        patience: The training stops after this many epochs without a lower validation error and keeps the best epoch;
            otherwise it keeps the last epoch, when the learning rate has decayed to zero.
        tasks_per_batch: Number of tasks in a step; ranking losses compare programs of one task.
        programs_per_task: Largest number of programs of a task in a step, drawn anew in each epoch.
        learning_rate: Peak of the learning rate, which follows one cosine after a warm-up over a tenth of the steps.
        weight_decay: Weight decay of AdamW.
        calibrated: Whether to fit the calibration on the validation tasks (``training.calibration``).
        seed: Seeds the weights, the order of the tasks and the draws of programs.
        accelerator: Accelerator for Lightning: ``cpu``, ``gpu`` or ``auto``.
        devices: Devices for Lightning; several use DDP, which starts the running command once more for each.
    """

    loss: str = "hinge+mse+top1"
    latency_weight: float = 1.0
    epochs: int = 40
    trees: int = 800
    patience: int = 24
    tasks_per_batch: int = 8
    programs_per_task: int = 32
    learning_rate: float = 2e-3
    weight_decay: float = 1e-1
    calibrated: bool = True
    seed: int = 0
    accelerator: str = "cpu"
    devices: int | str = 1


#: Preset of ``models.topk_gnn`` -> its default settings. TPGNN is trained as published, with Huber loss and without
#: calibration; it has fewer epochs because an epoch over full trees takes ten times longer.
PRESET_SETTINGS: dict[str, FitSettings] = {
    "gnn": FitSettings(),
    "tpgnn": FitSettings(loss="huber", epochs=8, trees=0, patience=8, weight_decay=1e-2, calibrated=False),
}

#: Preset -> number of steps that a training takes at least: with few tasks it has more epochs.
_LEAST_STEPS = {"gnn": 480, "tpgnn": 200}


def preset_settings(preset: str, train_tasks: int) -> FitSettings:
    """The default settings of a preset for a number of training tasks.

    >>> preset_settings("gnn", 400).epochs, preset_settings("gnn", 80).epochs
    (40, 48)
    """
    settings = PRESET_SETTINGS[preset]
    steps = -(-train_tasks // settings.tasks_per_batch)
    times = max(1.0, _LEAST_STEPS[preset] / (steps * settings.epochs))
    return replace(settings, epochs=round(settings.epochs * times), patience=round(settings.patience * times))


Step = tuple[GraphBatch, Tensor, Tensor, Tensor]


class TaskBatches(EpochSteps):
    """The steps of an epoch, each over whole tasks.

    A step is a batch of P graphs with float32[P] relative throughput, float32[P] latency in seconds (infinite for a
    failed program) and int64[P] task number.

    Under DDP every process shuffles the steps alike and takes its share of them; the first steps are repeated so that
    all processes have the same number.

    Args:
        programs: The programs of all tasks.
        scorer: Makes the batches.
        settings: Settings of the training.
        shuffle: Whether to shuffle the tasks and draw programs anew in each epoch.
    """

    def __init__(self, programs: MeasuredPrograms, scorer: Scorer, settings: FitSettings, shuffle: bool) -> None:
        self.programs, self.scorer, self.settings, self.shuffle = programs, scorer, settings, shuffle
        self.throughput = programs.throughput()
        order = np.argsort(programs.task, kind="stable")
        self.by_task = np.split(order, np.cumsum(np.bincount(programs.task))[:-1])

    def __len__(self) -> int:
        return -(-len(self.by_task) // (self.settings.tasks_per_batch * _processes()[1]))

    def __iter__(self) -> Iterator[Step]:
        rng = np.random.default_rng([self.settings.seed, self.epoch])
        order = rng.permutation(len(self.by_task)) if self.shuffle else np.arange(len(self.by_task))
        size = self.settings.tasks_per_batch
        steps = [order[start : start + size] for start in range(0, len(order), size)]
        rank, processes = _processes()
        for number in range(len(self)):
            tasks = steps[(number * processes + rank) % len(steps)]
            yield self.step(np.concatenate([self._draw(task, rng) for task in tasks]))

    def _draw(self, task: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        rows = self.by_task[task]
        limit = self.settings.programs_per_task
        if self.shuffle and len(rows) > limit:
            rows = rng.choice(rows, limit, replace=False)
        return rows

    def step(self, rows: npt.NDArray[np.int64]) -> Step:
        """The step of the programs with the given numbers."""
        rows = rows[np.argsort(self.programs.task[rows], kind="stable")]
        population = np.unique(self.programs.task[rows], return_inverse=True)[1].astype(np.int64)
        graphs = self.programs.graphs.select(rows)
        return (
            self.scorer.batch(graphs, population),
            torch.from_numpy(self.throughput[rows]),
            torch.from_numpy(self.programs.latency[rows].astype(np.float32)),
            torch.from_numpy(self.programs.task[rows].astype(np.int64)),
        )


def _processes() -> tuple[int, int]:
    """Rank of this process and number of processes that train together."""
    if not torch.distributed.is_initialized():
        return 0, 1
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


class FitModule(lightning.LightningModule):
    """A model with its loss and its optimizer."""

    def __init__(self, model: TopKGNN, settings: FitSettings) -> None:
        super().__init__()
        self.model, self.settings = model, settings
        self.loss = combine(settings.loss)

    def training_step(self, step: Step, _index: int) -> Tensor:
        """The loss of one step."""
        batch, target, latency, task = step
        scores, log_latency = self.model.score_and_latency(batch)
        loss: Tensor = self.loss(scores, target, task)
        if log_latency is not None:
            loss = loss + self.settings.latency_weight * latency_error(log_latency, latency)
        self.log("train_loss", loss, batch_size=len(target), on_step=False, on_epoch=True)
        return loss

    def validation_step(self, step: Step, _index: int) -> None:
        """Logs the loss and the share of wrongly ordered pairs of programs."""
        batch, target, _, task = step
        scores = self.model(batch)
        self.log("validation_loss", self.loss(scores, target, task), batch_size=len(target), sync_dist=True)
        error = pairwise_error(scores, target, task)
        self.log("validation_error", error, batch_size=len(target), sync_dist=True)

    def configure_optimizers(self) -> Any:
        """AdamW with a one-cycle learning rate."""
        optimizer = torch.optim.AdamW(
            self.parameters(), self.settings.learning_rate, weight_decay=self.settings.weight_decay
        )
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, self.settings.learning_rate, total_steps=max(2, steps), pct_start=0.1
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def transfer_batch_to_device(self, batch: Step, device: torch.device, _dataloader_idx: int) -> Step:
        """The step with all of its tensors on the device."""
        graphs, *others = batch
        target, latency, task = (tensor.to(device) for tensor in others)
        return graphs.to(device), target, latency, task


def new_checkpoint(config: TopKGNNConfig, vectors: NodeTypeVectors, train: MeasuredPrograms, seed: int) -> Checkpoint:
    """An untrained model that standardises its inputs by the node values of the training programs.

    It does not read the group ``gpu`` if none of them has a kernel.

    Args:
        config: The architecture.
        vectors: FastText vectors of length ``config.type_dim``.
        train: The training programs.
        seed: Seeds the weights.

    Raises:
        InputError: the vectors have another length than the architecture reads, or the programs have no node.
    """
    if vectors.dim != config.type_dim:
        raise InputError(f"node type vectors of length {vectors.dim}, and the model reads {config.type_dim}")
    if not train.graphs.values[:, columns(["gpu"])].any():
        config = replace(config, groups=tuple(group for group in config.groups if group != "gpu"))
    chosen = columns(config.groups)
    scale = Scale.fit([train.graphs.values[:, chosen]])
    mean, std = (torch.from_numpy(array.astype(np.float32)) for array in (scale.mean, scale.deviation))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = TopKGNN(config, mean, std)
    return Checkpoint(config, tuple(VALUES[i][0] for i in chosen), vectors, model.state_dict())


def fit(
    checkpoint: Checkpoint,
    train: MeasuredPrograms,
    validation: MeasuredPrograms,
    settings: FitSettings,
    folder: Path,
    progress: Progress = ignore,
) -> Checkpoint:
    """Trains a checkpoint's model and returns the trained one.

    An interrupted training resumes from ``folder/last.ckpt`` if the function is called again with the same settings.

    Args:
        checkpoint: The model to start from.
        train: Training programs.
        validation: Programs of other tasks, for early stopping and the calibration.
        settings: Settings of the training.
        folder: Folder of Lightning's checkpoints.
        progress: Receives an ``EpochFinished`` after each epoch, and a ``Stage`` before the trees are grown.

    Raises:
        InputError: there are no training or validation programs, or a setting or ``folder/last.ckpt`` is wrong.
        WorkError: the training diverged in its first epoch.
    """
    if not len(train) or not len(validation):
        raise InputError("training needs at least one program to train on and one of another task to validate on")
    scorer = Scorer(checkpoint)
    batches = TaskBatches(train, scorer, settings, shuffle=True)
    module = FitModule(scorer.model, settings)
    fingerprint = json.dumps({**asdict(settings), **asdict(checkpoint.config)}, sort_keys=True)
    validating = TaskBatches(validation, scorer, settings, shuffle=False)
    found = run(
        module,
        batches,
        validating,
        settings,
        fingerprint,
        folder,
        lambda epoch, metrics: progress(EpochFinished(epoch, metrics)),
    )
    card = {
        **checkpoint.card,
        "training": {
            **asdict(settings),
            "train_programs": len(train),
            "train_tasks": len(train.tasks),
            "validation_programs": len(validation),
            "validation_tasks": len(validation.tasks),
            "validation_error": found.validation_error,
        },
    }
    trained = replace(checkpoint, state=with_prefix(found.state, "model."), card=card, trees=None)
    if settings.trees:
        progress(Stage("growing trees"))
        trained = replace(trained, trees=_trees(trained, train, validation, settings))
    if not settings.calibrated:
        return trained
    scores = Scorer(trained).score(validation.graphs, validation.task)
    return replace(trained, calibration=calibrate(scores, validation.throughput()))


def _trees(
    network: Checkpoint, train: MeasuredPrograms, validation: MeasuredPrograms, settings: FitSettings
) -> StoreTrees:
    """Trees of the training programs, whose scores spread like the network's within tasks that trained neither."""
    scorer = Scorer(network)
    rows = store_rows(train.graphs, scorer.columns)
    trees = grow_trees(rows, train.throughput(), train.task, settings.trees, settings.seed)
    wanted = spread(scorer.score(validation.graphs, validation.task), validation.task)
    own = spread(trees.score(store_rows(validation.graphs, scorer.columns)), validation.task)
    return replace(trees, scale=wanted / own if own > 0 else 1.0)
