"""A training with Lightning that is silent, resumes, and leaves the caller's random numbers alone."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import lightning
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

Tell = Callable[[int, dict[str, float]], None]


class LoopSettings(Protocol):
    """What a training's settings have, whatever else they have."""

    @property
    def seed(self) -> int:
        """Of all that is drawn."""

    @property
    def epochs(self) -> int:
        """At most so many."""

    @property
    def patience(self) -> int:
        """Stop after this many epochs without a lower validation error."""

    @property
    def accelerator(self) -> str:
        """Lightning's: ``cpu``, ``gpu`` or ``auto``."""

    @property
    def devices(self) -> int | str:
        """Lightning's."""


@dataclass(frozen=True)
class Trained:
    """What came out.

    Attributes:
        state: The module's weights: of the last epoch, of the best one if the training was stopped before.
        validation_error: The lowest one.
    """

    state: dict[str, Tensor]
    validation_error: float | None


class _Report(Callback):
    """Tells of each finished epoch."""

    def __init__(self, tell: Tell) -> None:
        self.tell = tell

    def on_validation_epoch_end(self, trainer: lightning.Trainer, _module: lightning.LightningModule) -> None:
        if not trainer.sanity_checking:
            metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
            self.tell(trainer.current_epoch + 1, metrics)


def run(
    module: lightning.LightningModule,
    train: IterableDataset[Any],
    validation: IterableDataset[Any],
    settings: LoopSettings,
    fingerprint: str,
    folder: Path,
    tell: Tell,
) -> Trained:
    """Trains a module that logs ``validation_error``.

    An interrupted training goes on from ``folder/last.ckpt`` if it is called again with the same fingerprint.

    Args:
        module: The model with its loss and its optimizer.
        train: The steps of an epoch.
        validation: Likewise.
        settings: How.
        fingerprint: All that the weights depend on.
        folder: For Lightning's checkpoints.
        tell: Called after each epoch with its number and metrics.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Lightning's ranking of epochs; the file is Lightning's own format and is read back by Lightning only.
    best = ModelCheckpoint(folder, "best", monitor="validation_error", enable_version_counter=False, save_last=True)
    resume = folder / "last.ckpt"
    marker = folder / "settings.json"
    if resume.exists() and (not marker.exists() or marker.read_text() != fingerprint):
        resume.unlink()
    marker.write_text(fingerprint)
    with warnings.catch_warnings(), _quiet_lightning(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")
        torch.manual_seed(settings.seed)
        trainer = lightning.Trainer(
            accelerator=settings.accelerator,
            devices=settings.devices,
            max_epochs=settings.epochs,
            callbacks=[best, EarlyStopping("validation_error", patience=settings.patience), _Report(tell)],
            default_root_dir=folder,
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            num_sanity_val_steps=0,
            gradient_clip_val=1.0,
        )
        module.train()
        trainer.fit(
            module,
            DataLoader(train, batch_size=None),
            DataLoader(validation, batch_size=None),
            ckpt_path=resume if resume.exists() else None,
            weights_only=False,
        )
        state = {name: tensor.detach().cpu() for name, tensor in module.state_dict().items()}
        if trainer.current_epoch < settings.epochs:
            state = torch.load(best.best_model_path, weights_only=True, map_location="cpu")["state_dict"]
        trainer.strategy.barrier()  # the caller may remove the folder once every process has read it
    return Trained(state, float(best.best_model_score) if best.best_model_score is not None else None)


class _quiet_lightning:
    """Lightning greets and gives tips through logging."""

    def __enter__(self) -> None:
        self.loggers = [logging.getLogger(n) for n in ("lightning.pytorch", "lightning.fabric", "lightning")]
        self.levels = [logger.level for logger in self.loggers]
        for logger in self.loggers:
            logger.setLevel(logging.ERROR)

    def __exit__(self, *_error: object) -> None:
        for logger, level in zip(self.loggers, self.levels, strict=True):
            logger.setLevel(level)
