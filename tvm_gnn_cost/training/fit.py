"""Trains a graph model on measured programs with Lightning."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import lightning
import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tvm_gnn_cost.datasets.programs import SAMPLED, Programs
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.batch import GraphBatch
from tvm_gnn_cost.graphs.buffer_stores import buffer_stores
from tvm_gnn_cost.graphs.embedding import NodeTypeVectors
from tvm_gnn_cost.graphs.program_graph import in_parts
from tvm_gnn_cost.graphs.values import VALUES, columns
from tvm_gnn_cost.models.buffer_store_trees import BufferStoreTrees, grow_trees
from tvm_gnn_cost.models.losses import combine, latency_error, pairwise_error
from tvm_gnn_cost.models.topk_gnn import TopKGNN, TopKGNNConfig
from tvm_gnn_cost.progress import EpochFinished, Progress, Stage, ignore
from tvm_gnn_cost.scoring.calibration import calibrate, spread
from tvm_gnn_cost.scoring.checkpoint import Checkpoint
from tvm_gnn_cost.scoring.cost_model import CostModel
from tvm_gnn_cost.scoring.scorer import Scorer
from tvm_gnn_cost.scoring.tensor_file import with_prefix
from tvm_gnn_cost.training.loop import EpochSteps, run
from tvm_gnn_cost.training.scale import Scale

#: Programs that are validated on, in memory, and those of one task: a loss compares all pairs of a task.
_VALIDATED, _VALIDATED_OF_TASK = 8_192, 512


@dataclass(frozen=True)
class FitSettings:
    """Settings of a training.

    Attributes:
        loss: One of ``models.losses.LOSSES``, or several joined by ``+``.
        latency_weight: Weight of the error of the predicted latency in the loss, for a model that predicts one.
        epochs: Largest number of passes over the tasks.
        trees: Number of boosted trees (``models.buffer_store_trees``) that score beside the network; 0 for none. A
            training that starts from a model with trees keeps these and adds at most a tree per 50 programs.
        patience: The training stops after this many epochs without a lower validation error and keeps the best epoch;
            otherwise it keeps the last epoch, when the learning rate has decayed to zero.
        tasks_per_batch: Number of tasks in a step of all devices together; ranking losses compare programs of one task.
        programs_per_task: Largest number of programs of a task in a step, drawn anew in each epoch.
        learning_rate: Peak of the learning rate, which follows one cosine after a warm-up over a tenth of the steps.
        weight_decay: Weight decay of AdamW.
        calibrated: Whether to fit the calibration on the validation tasks (``scoring.calibration``).
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

#: Share of the learning rate and of the epochs with which a trained network is trained further
#: (benchmarks/LOG.md, "A new processor").
_FINE_LEARNING_RATE, _FINE_EPOCHS = 0.1, 0.5
#: Number of trees that are added to those of a trained model, at most, and of programs for each of them.
_ADDED_TREES, _PROGRAMS_PER_ADDED_TREE = 200, 50


def preset_settings(preset: str, train_tasks: int, fine_tuned: bool = False) -> FitSettings:
    """The default settings of a preset for a number of training tasks.

    >>> preset_settings("gnn", 400).epochs, preset_settings("gnn", 80).epochs
    (40, 48)

    Args:
        preset: A key of :data:`PRESET_SETTINGS`.
        train_tasks: Number of training tasks.
        fine_tuned: Whether the training starts from a trained checkpoint.
    """
    settings = PRESET_SETTINGS[preset]
    steps = -(-train_tasks // settings.tasks_per_batch)
    times = max(1.0, _LEAST_STEPS[preset] / (steps * settings.epochs))
    if fine_tuned:
        times *= _FINE_EPOCHS
        settings = replace(settings, learning_rate=settings.learning_rate * _FINE_LEARNING_RATE)
    return replace(settings, epochs=round(settings.epochs * times), patience=round(settings.patience * times))


class Step(NamedTuple):
    """The P programs of some tasks, of which each process has a part.

    Attributes:
        batch: G graphs.
        target: float32[P], relative throughput.
        latency: float32[P] in seconds; infinite for a failed program.
        task: int64[P], number of the task, ascending.
        own: int64[G], which of the P programs the graphs are of. A process without a task of its own has no number
            here, but a graph all the same: all processes must compute a gradient.
    """

    batch: GraphBatch
    target: Tensor
    latency: Tensor
    task: Tensor
    own: Tensor


class TaskBatches(EpochSteps):
    """The steps of an epoch, each over whole tasks.

    Under DDP every process draws the same programs for a step, and has the graphs of its share of the step's tasks.

    Args:
        programs: The programs of all tasks.
        scorer: Makes the batches.
        settings: Settings of the training.
        shuffle: Whether to shuffle the tasks and draw programs anew in each epoch.
    """

    def __init__(self, programs: Programs, scorer: Scorer, settings: FitSettings, shuffle: bool) -> None:
        self.programs, self.scorer, self.settings, self.shuffle = programs, scorer, settings, shuffle
        self.throughput = programs.throughput()
        order = np.argsort(programs.task, kind="stable")
        self.by_task = np.split(order, np.cumsum(np.bincount(programs.task))[:-1])

    def __len__(self) -> int:
        return -(-len(self.by_task) // self.settings.tasks_per_batch)

    def __iter__(self) -> Iterator[Step]:
        rng = np.random.default_rng([self.settings.seed, self.epoch])
        order = rng.permutation(len(self.by_task)) if self.shuffle else np.arange(len(self.by_task))
        size = self.settings.tasks_per_batch
        for start in range(0, len(order), size):
            yield self.step(np.concatenate([self._draw(task, rng) for task in order[start : start + size]]))

    def _draw(self, task: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
        rows = self.by_task[task]
        limit = self.settings.programs_per_task
        if self.shuffle and len(rows) > limit:
            rows = rng.choice(rows, limit, replace=False)
        return rows

    def step(self, rows: npt.NDArray[np.int64]) -> Step:
        """The step of the programs with the given numbers."""
        rows = rows[np.argsort(self.programs.task[rows], kind="stable")]
        task = self.programs.task[rows]
        number = np.unique(task, return_inverse=True)[1]
        rank, processes = _processes()
        own = np.flatnonzero(number % processes == rank)
        chosen = own if len(own) else np.flatnonzero(number == 0)
        return Step(
            self.scorer.batch(self.programs.graphs.select(rows[chosen]).read()),
            torch.from_numpy(self.throughput[rows]),
            torch.from_numpy(self.programs.latency[rows].astype(np.float32)),
            torch.from_numpy(task.astype(np.int64)),
            torch.from_numpy(own),
        )


def _processes() -> tuple[int, int]:
    """Rank of this process and number of processes that train together."""
    if not torch.distributed.is_initialized():
        return 0, 1
    return torch.distributed.get_rank(), torch.distributed.get_world_size()


def _of_all(found: Tensor, step: Step) -> Tensor:
    """What the processes found of the graphs they have, as one: float32[P] from float32[G].

    A gradient reaches what this process found.
    """
    if _processes()[1] == 1:
        return found
    own = found[: len(step.own)]
    none = own.new_zeros(len(step.target))
    everything = none.index_add(0, step.own, own.detach())
    torch.distributed.all_reduce(everything)
    return everything + none.index_add(0, step.own, own - own.detach())


class FitModule(lightning.LightningModule):
    """A model with its loss and its optimizer."""

    def __init__(self, model: TopKGNN, settings: FitSettings) -> None:
        super().__init__()
        self.model, self.settings = model, settings
        self.loss = combine(settings.loss)

    def training_step(self, step: Step, _index: int) -> Tensor:
        """The loss of one step, of which DDP takes the mean gradient over the processes."""
        scores, log_latency = self.model.score_and_latency(step.batch)
        scores = _of_all(scores, step)
        loss: Tensor = self.loss(scores, step.target, step.task)
        if log_latency is not None:
            error = latency_error(_of_all(log_latency, step), step.latency)
            loss = loss + self.settings.latency_weight * error
        # Each process has the gradient of its own programs' part of the loss: the sum is wanted, not the mean.
        return loss * _processes()[1]

    def validation_step(self, step: Step, _index: int) -> None:
        """Logs the loss and the share of wrongly ordered pairs of programs, the same in all processes."""
        scores = _of_all(self.model(step.batch), step)
        programs = len(step.target)
        self.log("validation_loss", self.loss(scores, step.target, step.task), batch_size=programs)
        self.log("validation_error", pairwise_error(scores, step.target, step.task), batch_size=programs)

    def configure_optimizers(self) -> Any:
        """AdamW with a one-cycle learning rate."""
        optimizer = torch.optim.AdamW(
            self.parameters(), self.settings.learning_rate, weight_decay=self.settings.weight_decay
        )
        steps = int(self.trainer.estimated_stepping_batches)
        # With ten steps the warm-up would end when it begins, and torch would divide by its length.
        steps = 11 if steps == 10 else max(2, steps)
        schedule = torch.optim.lr_scheduler.OneCycleLR(
            optimizer, self.settings.learning_rate, total_steps=steps, pct_start=0.1
        )
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def transfer_batch_to_device(self, batch: Step, device: torch.device, _dataloader_idx: int) -> Step:
        """The step with all of its tensors on the device."""
        return Step._make(part.to(device) for part in batch)


def new_checkpoint(config: TopKGNNConfig, vectors: NodeTypeVectors, train: Programs, seed: int) -> Checkpoint:
    """An untrained model that standardises its inputs by the node features of the training programs.

    It does not read the group ``gpu`` if none of them has a kernel.

    Args:
        config: The architecture.
        vectors: FastText vectors of length ``config.type_dim``.
        train: The training programs, or some of them.
        seed: Seeds the weights.

    Raises:
        InputError: the vectors have another length than the architecture reads, or the programs have no node.
    """
    if vectors.dim != config.type_dim:
        raise InputError(f"node type vectors of length {vectors.dim}, and the model reads {config.type_dim}")
    scale = Scale.fit(part.x for part in in_parts(train.graphs))
    # They are counts: without a kernel all are 0.
    if not scale.mean[columns(["gpu"])].any():
        config = replace(config, groups=tuple(group for group in config.groups if group != "gpu"))
    chosen = columns(config.groups)
    mean, std = (torch.from_numpy(array[chosen].astype(np.float32)) for array in (scale.mean, scale.deviation))
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = TopKGNN(config, mean, std)
    return Checkpoint(config, tuple(VALUES[i][0] for i in chosen), vectors, model.state_dict())


def fit(
    checkpoint: Checkpoint,
    train: Programs,
    validation: Programs,
    settings: FitSettings,
    folder: Path,
    progress: Progress = ignore,
) -> CostModel:
    """Trains a checkpoint's model and returns the trained one, with its history.

    An interrupted training resumes from ``folder/last.ckpt`` if the function is called again with the same settings.

    Args:
        checkpoint: The model to start from.
        train: Training programs; the trees learn from a sample of at most ``SAMPLED``.
        validation: Programs of other tasks, for early stopping and the calibration; of many, a sample.
        settings: Settings of the training.
        folder: Folder of Lightning's checkpoints.
        progress: Receives an ``EpochFinished`` after each epoch, and a ``Stage`` before the trees are grown.

    Raises:
        InputError: there are no training or validation programs, or a setting or ``folder/last.ckpt`` is wrong.
        WorkError: the training diverged in its first epoch.
    """
    if not len(train) or not len(validation):
        raise InputError("training needs at least one program to train on and one of another task to validate on")
    if not np.isfinite(train.latency).any() or not np.isfinite(validation.latency).any():
        raise InputError("every program to train on, or to validate on, failed; there is nothing to learn from")
    validation = validation.sample(_VALIDATED, settings.seed, _VALIDATED_OF_TASK).in_memory()
    scorer = Scorer(checkpoint)
    batches = TaskBatches(train, scorer, settings, shuffle=True)
    module = FitModule(scorer.model, settings)
    fingerprint = json.dumps({**asdict(settings), **asdict(checkpoint.config)}, sort_keys=True)
    validating = TaskBatches(validation, scorer, settings, shuffle=False)
    done = run(
        module,
        batches,
        validating,
        settings,
        fingerprint,
        folder,
        lambda epoch, metrics: progress(EpochFinished(epoch, metrics)),
    )
    training = {
        **asdict(settings),
        "train_programs": len(train),
        "train_tasks": len(train.tasks),
        "validation_programs": len(validation),
        "validation_tasks": len(validation.tasks),
        "validation_error": done.validation_error,
    }
    trained = replace(checkpoint, state=with_prefix(done.state, "model."), trees=None)
    if settings.trees:
        progress(Stage("growing trees"))
        trees = _trees(trained, checkpoint.trees, train, validation, settings)
        # Fine-tuning adds to those of the checkpoint, and fewer than the setting allows.
        training["trees"] = trees.booster.num_boosted_rounds()
        trained = replace(trained, trees=trees)
    trained = replace(trained, card={**checkpoint.card, "training": training})
    if settings.calibrated:
        scores = Scorer(trained).score(validation.graphs.read(), validation.task)
        trained = replace(trained, calibration=calibrate(scores, validation.throughput()))
    return CostModel(trained, history=done.history)


def _trees(
    network: Checkpoint, earlier: BufferStoreTrees | None, train: Programs, validation: Programs, settings: FitSettings
) -> BufferStoreTrees:
    """Trees of the training programs, whose scores spread like the network's within tasks that trained neither.

    Those of an ``earlier`` model are kept, with their scale: few programs of another processor do not outweigh them.
    """
    scorer = Scorer(network)
    some = train.sample(SAMPLED, settings.seed)
    rows = buffer_stores(some.graphs, scorer.columns)
    if earlier is not None:
        count = min(settings.trees, _ADDED_TREES, len(some) // _PROGRAMS_PER_ADDED_TREE)
        trees = grow_trees(rows, some.throughput(), some.task, count, settings.seed, earlier=earlier)
        return replace(trees, scale=earlier.scale)
    trees = grow_trees(rows, some.throughput(), some.task, settings.trees, settings.seed)
    graphs = validation.graphs.read()
    wanted = spread(scorer.score(graphs, validation.task), validation.task)
    own = spread(trees.score(buffer_stores(graphs, scorer.columns)), validation.task)
    return replace(trees, scale=wanted / own if own > 0 else 1.0)
