"""Trains a cost model on a graph store."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import psutil
from lightning.fabric.utilities.rank_zero import rank_zero_only

from tvm_gnn_cost.datasets.programs import Programs
from tvm_gnn_cost.datasets.split import Split, networks_to_test
from tvm_gnn_cost.datasets.store import GraphStore
from tvm_gnn_cost.errors import InputError, check_range
from tvm_gnn_cost.files import check_file
from tvm_gnn_cost.models.losses import combine
from tvm_gnn_cost.models.topk_gnn import PRESETS
from tvm_gnn_cost.models.tvm_baselines import OfflineXGB
from tvm_gnn_cost.progress import Advanced, Progress, Stage, ignore
from tvm_gnn_cost.schedulers import package
from tvm_gnn_cost.scoring.checkpoint import Checkpoint
from tvm_gnn_cost.scoring.cost_model import CostModel
from tvm_gnn_cost.training.fit import preset_settings
from tvm_gnn_cost.training.pipeline import split_programs, train_gnn, train_xgb
from tvm_gnn_cost.tuning.models import resolved

#: The models that can be trained: the presets, and TVM's own.
MODELS = (*PRESETS, "xgb")

#: Graphs that take more than this share of the machine's memory stay in the store and are read when they are needed.
_MEMORY_SHARE = 1 / 8

#: Far above the devices of any machine.
_MOST_DEVICES = 64


def train(
    store: str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    model: str = "gnn",
    held_out: Sequence[str] = (),
    loss: str | None = None,
    epochs: int | None = None,
    learning_rate: float | None = None,
    seed: int = 0,
    accelerator: str = "cpu",
    devices: int = 1,
    start: CostModel | str | os.PathLike[str] | None = None,
    progress: Progress = ignore,
) -> CostModel | OfflineXGB:
    """Trains a model; with ``output``, it is written, and an interrupted training resumes after its last epoch.

    A store larger than memory is read while it is trained on, which gives the same model; ``xgb`` needs all of it.

    Args:
        store: A graph store, see :func:`~tvm_gnn_cost.tuning.extract.extract`.
        output: The checkpoint to write; XGBoost's JSON for ``xgb``. None to write nothing.
        model: ``gnn``, ``tpgnn`` (as published) or ``xgb`` (TVM's own).
        held_out: Networks whose tasks do not train, or patterns such as ``families:swin_*``; by default the test
            networks.
        loss: One of ``models.losses.LOSSES``, or several joined by ``+``; the preset's own by default.
        epochs: Maximum number of epochs.
        learning_rate: Peak of the learning rate.
        seed: Seeds the weights, the order of the tasks and the choice of the validation tasks.
        accelerator: Lightning's ``cpu``, ``gpu`` or ``auto``.
        devices: With several, Lightning's DDP, which shares out the tasks of each step.
        start: A :class:`~tvm_gnn_cost.scoring.cost_model.CostModel`, a checkpoint's path, or ``gnn`` for the
            checkpoint that ships, to continue training from.
        progress: Receives an ``EpochFinished`` after each epoch, and a ``Stage`` before what else takes long.

    Returns:
        The trained :class:`~tvm_gnn_cost.scoring.cost_model.CostModel`, with its ``history``; for ``xgb`` an
        ``XGBBaseline``.

    Raises:
        InputError: an argument is wrong, or the store is empty or damaged.
        WorkError: the training diverged.
        WrongTVMError: ``xgb`` needs a TVM, and there is none.

    >>> model = train(store, held_out=["net1"], epochs=2)
    >>> len(model.history["train_loss"])
    2
    >>> model.save(work / "mine.safetensors")
    """
    if model not in MODELS:
        raise InputError(f"unknown model '{model}'; one of: {', '.join(MODELS)}")
    if loss is not None:
        combine(loss)  # a misspelt one is found out now
    check_range("epochs", epochs, 1, 100_000)
    check_range("learning_rate", learning_rate, 1e-12, 100)
    check_range("seed", seed, 0, 2**31 - 1)
    # Each device is a process.
    check_range("devices", devices, 1, _MOST_DEVICES)
    if output is not None:
        output = Path(output)
        check_file(output)
    earlier = None if start is None else _checkpoint_of(start)
    graphs = GraphStore(Path(store))
    if model == "xgb":
        measured = graphs.load(with_features=True)
        parts = _split(measured, held_out, seed)
        progress(Stage("training"))
        xgb = train_xgb(package().XGBBaseline(seed), measured, parts)
        if output is not None:
            xgb.save(output)
        return xgb
    programs = graphs.programs(int(_MEMORY_SHARE * psutil.virtual_memory().total / devices))
    if earlier is not None:
        for scheduler in sorted({task.scheduler for task in programs.tasks}):
            earlier.check_scheduler(scheduler)
    parts = _split(programs, held_out, seed)
    given: dict[str, Any] = {"loss": loss, "epochs": epochs, "learning_rate": learning_rate}
    settings = replace(
        preset_settings(model, len(np.unique(programs.task[parts.train])), earlier is not None),
        seed=seed,
        accelerator=accelerator,
        devices=devices,
        **{name: value for name, value in given.items() if value is not None},
    )
    progress(Advanced(0, settings.epochs))
    if output is None:
        with TemporaryDirectory() as unfinished:
            return train_gnn(programs, parts, PRESETS[model], settings, Path(unfinished), earlier, progress)
    folder = output.with_name(f"{output.name}.unfinished")
    trained = train_gnn(programs, parts, PRESETS[model], settings, folder, earlier, progress)
    rank_zero_only(trained.save)(output)
    # Not before: a kill in between would lose the training.
    rank_zero_only(shutil.rmtree)(folder)
    return trained


def _checkpoint_of(start: Any) -> Checkpoint:
    model = resolved(start)
    if not isinstance(model, CostModel):
        raise InputError(f"start must be a CostModel or a checkpoint's path, not {start!r}")
    return model.checkpoint


def _split(programs: Programs, held_out: Sequence[str], seed: int) -> Split:
    return split_programs(programs, held_out or networks_to_test(programs.networks), seed)
