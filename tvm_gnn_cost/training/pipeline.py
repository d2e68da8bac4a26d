"""From stored programs to a trained model: vectors, normalisation, fitting, checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from lightning.fabric.utilities.rank_zero import rank_zero_only

from tvm_gnn_cost.datasets.programs import MeasuredPrograms
from tvm_gnn_cost.datasets.split import Split, split
from tvm_gnn_cost.graphs.embedding import train_vectors
from tvm_gnn_cost.models.auto_scheduler_trees import AutoSchedulerTrees
from tvm_gnn_cost.models.boosted_trees import BoostedTrees, boosted_trees
from tvm_gnn_cost.models.topk_gnn import TopKGNNConfig
from tvm_gnn_cost.training.checkpoint import Checkpoint
from tvm_gnn_cost.training.fit import FitSettings, fit, new_checkpoint

#: Share of the training tasks that decide when to stop.
VALIDATION_FRACTION = 0.12


def split_programs(programs: MeasuredPrograms, held_out: Sequence[str], seed: int) -> Split:
    """The split that every model of the project is trained with.

    Raises:
        ValueError: a held-out network does not occur, or a part is empty.
    """
    return split(programs, held_out, VALIDATION_FRACTION, seed)


def train_gnn(
    programs: MeasuredPrograms,
    parts: Split,
    config: TopKGNNConfig,
    settings: FitSettings,
    folder: Path,
    start: Checkpoint | None = None,
    tell: Callable[[int, dict[str, float]], None] = lambda _epoch, _metrics: None,
) -> Checkpoint:
    """Trains a graph model on ``parts.train``, with node type vectors trained on the same programs.

    Args:
        programs: All programs.
        parts: Which of them train and which decide when to stop.
        config: The architecture; not used when there is a ``start``.
        settings: How.
        folder: Where an interrupted training is kept, to go on with; removed at the end.
        start: Weights to start from.
        tell: Called after each epoch with its number and metrics.

    Raises:
        ValueError: a part is empty, or the graphs have another detail than the model reads.
    """
    train = programs.select(parts.train)
    if start is None:
        vectors = train_vectors(train.graphs, dim=config.type_dim, seed=settings.seed)
        start = new_checkpoint(config, vectors, train, settings.seed)
    trained = fit(start, train, programs.select(parts.validation), settings, folder, tell)
    trained.card["networks"] = sorted({network for task in train.tasks for network in task.weights})
    trained.card["targets"] = sorted({task.target for task in train.tasks})
    rank_zero_only(shutil.rmtree)(folder)
    return trained


def train_xgb(programs: MeasuredPrograms, parts: Split, seed: int) -> BoostedTrees | AutoSchedulerTrees:
    """TVM's XGBModel on the programs that a graph model trains on and those that it stops by: it has no use for those.

    Raises:
        ValueError: the programs carry no per-store features.
    """
    trees = boosted_trees(seed)
    trees.fit(programs.select(np.concatenate([parts.train, parts.validation])))
    return trees
