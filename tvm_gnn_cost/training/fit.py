"""Trains a graph model on measured programs, with Lightning."""

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
from tvm_gnn_cost.graphs.batch import GraphBatch
from tvm_gnn_cost.graphs.embedding import NodeTypeVectors
from tvm_gnn_cost.graphs.values import VALUES, columns
from tvm_gnn_cost.models.topk_gnn import TopKGNN, TopKGNNConfig
from tvm_gnn_cost.training.calibration import calibrate
from tvm_gnn_cost.training.checkpoint import Checkpoint, Scorer, normalisation
from tvm_gnn_cost.training.loop import EpochSteps, Tell, run
from tvm_gnn_cost.training.losses import combine, latency_error, pairwise_error
from tvm_gnn_cost.training.tensor_file import part


@dataclass(frozen=True)
class FitSettings:
    """How a model is trained.

    Attributes:
        loss: One of ``losses.LOSSES``, or several joined by ``+``.
        latency_weight: What the error of the predicted latency counts beside it, for a model that predicts one.
        epochs: At most this many passes over the tasks.
        patience: Stop after this many epochs without a lower validation error, and keep the best epoch; a training
            that is not stopped keeps its last one, at which one cosine of the learning rate has come to rest.
        tasks_per_batch: Tasks in one step; a ranking loss compares within a task.
        programs_per_task: At most this many programs of a task in one step, drawn anew each epoch.
        learning_rate: The peak; one cosine with a warm-up of a tenth.
        weight_decay: AdamW's.
        calibrated: Whether the validation tasks also set what throughput a score means (``training.calibration``).
        seed: Of weights, order and draws.
        accelerator: Lightning's: ``cpu``, ``gpu`` or ``auto``.
        devices: Lightning's; with several, DDP, which starts the running command once more for each of them.
    """

    loss: str = "hinge+mse+top1"
    latency_weight: float = 1.0
    epochs: int = 20
    patience: int = 12
    tasks_per_batch: int = 8
    programs_per_task: int = 32
    learning_rate: float = 2e-3
    weight_decay: float = 1e-1
    calibrated: bool = True
    seed: int = 0
    accelerator: str = "cpu"
    devices: int | str = 1


#: How each preset of ``models.topk_gnn`` is trained unless told otherwise. TPGNN's loss is Huber's and it has no
#: calibration; an epoch over full trees takes ten times longer, so it has fewer.
PRESET_SETTINGS: dict[str, FitSettings] = {
    "gnn": FitSettings(),
    "tpgnn": FitSettings(loss="huber", epochs=8, patience=8, weight_decay=1e-2, calibrated=False),
}

#: On few tasks the presets train for more epochs, up to this many steps.
_LEAST_STEPS = {"gnn": 480, "tpgnn": 200}


def preset_settings(preset: str, train_tasks: int) -> FitSettings:
    """How a preset is trained on so many tasks."""
    settings = PRESET_SETTINGS[preset]
    steps = -(-train_tasks // settings.tasks_per_batch)
    times = max(1.0, _LEAST_STEPS[preset] / (steps * settings.epochs))
    return replace(settings, epochs=round(settings.epochs * times), patience=round(settings.patience * times))


Step = tuple[GraphBatch, Tensor, Tensor, Tensor]


class TaskBatches(EpochSteps):
    """Steps of whole tasks, in another order each epoch.

    A step is a batch of graphs, float32[P] throughput, float32[P] latency (seconds, infinite for a failed program) and
    int64[P] task.

    Under DDP the processes take turns at the steps of one order; the first steps come again where one would lack some.
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
        """The given programs as one step."""
        graphs = self.programs.graphs.select(rows)
        return (
            self.scorer.batch(graphs),
            torch.from_numpy(self.throughput[rows]),
            torch.from_numpy(self.programs.latency[rows].astype(np.float32)),
            torch.from_numpy(self.programs.task[rows].astype(np.int64)),
        )


def _processes() -> tuple[int, int]:
    """This process's number and how many train together."""
    if not torch.distributed.is_initialized():
        return 0, 1
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


class FitModule(lightning.LightningModule):
    """The model with its loss and its optimizer."""

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
        """Logs the loss and the share of pairs that are ordered wrongly."""
        batch, target, _, task = step
        scores = self.model(batch)
        self.log("validation_loss", self.loss(scores, target, task), batch_size=len(target), sync_dist=True)
        error = pairwise_error(scores, target, task)
        self.log("validation_error", error, batch_size=len(target), sync_dist=True)

    def configure_optimizers(self) -> Any:
        """AdamW with one cosine."""
        optimizer = torch.optim.AdamW(
            self.parameters(), self.settings.learning_rate, weight_decay=self.settings.weight_decay
        )
        steps = int(self.trainer.estimated_stepping_batches)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, self.settings.learning_rate, total_steps=max(2, steps), pct_start=0.1
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def transfer_batch_to_device(self, batch: Step, device: torch.device, _dataloader_idx: int) -> Step:
        """Moves a step."""
        graphs, *others = batch
        target, latency, task = (tensor.to(device) for tensor in others)
        return graphs.to(device), target, latency, task


def new_checkpoint(config: TopKGNNConfig, vectors: NodeTypeVectors, train: MeasuredPrograms, seed: int) -> Checkpoint:
    """An untrained model, normalised for the given programs.

    Raises:
        ValueError: the vectors have another length than the architecture wants.
    """
    if vectors.dim != config.type_dim:
        raise ValueError(f"node type vectors of length {vectors.dim}, and the model wants {config.type_dim}")
    chosen = columns(config.groups)
    norm = normalisation(train.graphs, chosen)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = TopKGNN(config, torch.zeros(0, config.type_dim), norm["mean"], norm["std"])
    return Checkpoint(config, tuple(VALUES[i][0] for i in chosen), vectors, model.state_dict())


def fit(
    checkpoint: Checkpoint,
    train: MeasuredPrograms,
    validation: MeasuredPrograms,
    settings: FitSettings,
    folder: Path,
    tell: Tell = lambda _epoch, _metrics: None,
) -> Checkpoint:
    """Trains from a checkpoint's weights.

    An interrupted training goes on from ``folder/last.ckpt`` if it is called again with the same settings.

    Args:
        checkpoint: Where to start.
        train: Programs to learn from.
        validation: Programs of other tasks, which decide when to stop.
        settings: How.
        folder: For Lightning's checkpoints.
        tell: Called after each epoch with its number and metrics.

    Raises:
        ValueError: there is nothing to train on, or no such loss.
    """
    if not len(train) or not len(validation):
        raise ValueError("training needs at least one program to train on and one of another task to validate on")
    scorer = Scorer(checkpoint)
    batches = TaskBatches(train, scorer, settings, shuffle=True)
    module = FitModule(scorer.model, settings)
    fingerprint = json.dumps({**asdict(settings), **asdict(checkpoint.config)}, sort_keys=True)
    found = run(
        module, batches, TaskBatches(validation, scorer, settings, shuffle=False), settings, fingerprint, folder, tell
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
    trained = replace(checkpoint, state=part(found.state, "model."), card=card)
    if not settings.calibrated:
        return trained
    scores = Scorer(trained).score(validation.graphs)
    return replace(trained, calibration=calibrate(scores, validation.throughput()))
