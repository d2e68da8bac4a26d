"""Trains the models of this package and TVM's XGBoost model on stored programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tvm_gnn_cost.datasets.programs import SAMPLED, MeasuredPrograms, Programs
from tvm_gnn_cost.datasets.split import Split, split
from tvm_gnn_cost.graphs.embedding import train_vectors
from tvm_gnn_cost.models.topk_gnn import TopKGNNConfig
from tvm_gnn_cost.models.tvm_baselines import OfflineXGB
from tvm_gnn_cost.progress import Progress, ignore
from tvm_gnn_cost.scoring.checkpoint import Checkpoint
from tvm_gnn_cost.scoring.cost_model import CostModel
from tvm_gnn_cost.training.fit import FitSettings, fit, new_checkpoint

#: Share of the tasks outside the held-out networks that is used for validation.
VALIDATION_FRACTION = 0.12


def split_programs(programs: Programs, held_out: Sequence[str], seed: int) -> Split:
    """The split with which every model is trained, see :func:`~tvm_gnn_cost.datasets.split.split`.

    Args:
        programs: All programs.
        held_out: Names of the networks whose tasks must not train.
        seed: Seeds the choice of the validation tasks.

    Raises:
        InputError: a held-out network does not occur, or a part would be empty.
    """
    return split(programs, held_out, VALIDATION_FRACTION, seed)


def train_gnn(
    programs: Programs,
    parts: Split,
    config: TopKGNNConfig,
    settings: FitSettings,
    folder: Path,
    start: Checkpoint | None = None,
    progress: Progress = ignore,
) -> CostModel:
    """Trains a graph model, and its node type vectors, on the training part of the programs.

    Args:
        programs: All programs; graphs that are in a store stay there, and are read when a step needs them.
        parts: The split of the programs.
        config: The architecture; ignored if there is a ``start``.
        settings: Settings of the training.
        folder: Folder from which an interrupted training resumes; to be removed when the result is saved.
        start: Checkpoint to start from, with its own node type vectors; by default a new model.
        progress: Receives an ``EpochFinished`` after each epoch, and a ``Stage`` before the trees are grown.

    Raises:
        InputError: a part is empty, or the graphs have another detail than the model reads.
        WorkError: the training diverged in its first epoch.
    """
    train = programs.select(parts.train)
    if start is None:
        start = _untrained(config, train.sample(SAMPLED, settings.seed).in_memory(), settings.seed)
    trained = fit(start, train, programs.select(parts.validation), settings, folder, progress)
    trained.card["networks"] = sorted({network for task in train.tasks for network in task.weights})
    trained.card["targets"] = sorted({task.target for task in train.tasks})
    return trained


def _untrained(config: TopKGNNConfig, programs: Programs, seed: int) -> Checkpoint:
    vectors = train_vectors(programs.graphs.read(), dim=config.type_dim, seed=seed)
    return new_checkpoint(config, vectors, programs, seed)


def train_xgb(trees: OfflineXGB, programs: MeasuredPrograms, parts: Split) -> OfflineXGB:
    """Trains TVM's XGBoost model on training and validation programs together: it does not stop early.

    Raises:
        InputError: the programs have no per-store features.
    """
    trees.fit(programs.select(np.concatenate([parts.train, parts.validation])))
    return trees
