"""A training with Lightning that is silent, resumes, and leaves the caller's random numbers alone."""

from __future__ import annotations

import logging
import math
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import lightning
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from lightning.pytorch.trainer.states import TrainerFn
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


class EpochSteps(IterableDataset[Any]):
    """The steps of an epoch.

    Attributes:
        epoch: Its number from 0, for what is drawn anew in each; set by :func:`run`.
    """

    epoch = 0


@dataclass(frozen=True)
class Trained:
    """What came out.

    Attributes:
        state: The module's weights: of the last epoch, of the best one if the training was stopped before.
        validation_error: Theirs.
    """

    state: dict[str, Tensor]
    validation_error: float


class _Epochs(Callback):
    """Numbers the epochs and tells of each one that is finished.

    Keeps the state of torch's random numbers with each checkpoint: a resumed training draws what it would have drawn.
    """

    def __init__(self, steps: EpochSteps, tell: Tell) -> None:
        self.steps, self.tell = steps, tell

    def on_train_epoch_start(self, trainer: lightning.Trainer, _module: lightning.LightningModule) -> None:
        self.steps.epoch = trainer.current_epoch

    def on_validation_epoch_end(self, trainer: lightning.Trainer, _module: lightning.LightningModule) -> None:
        if trainer.state.fn == TrainerFn.FITTING:
            metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
            self.tell(trainer.current_epoch + 1, metrics)

    def state_dict(self) -> dict[str, Any]:
        return {"random": torch.get_rng_state()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        torch.set_rng_state(state_dict["random"])


def run(
    module: lightning.LightningModule,
    train: EpochSteps,
    validation: IterableDataset[Any],
    settings: LoopSettings,
    fingerprint: str,
    folder: Path,
    tell: Tell,
    gradient_clip: float = 1.0,
) -> Trained:
    """Trains a module that logs ``validation_error``, infinite where its scores are not finite.

    An interrupted training goes on from ``folder/last.ckpt`` if it is called again with the same fingerprint.

    Args:
        module: The model with its loss and its optimizer.
        train: The steps of an epoch.
        validation: Likewise.
        settings: How.
        fingerprint: All that the weights depend on.
        folder: For Lightning's checkpoints.
        tell: Called after each epoch with its number and metrics.
        gradient_clip: No step's gradient is longer.

    Raises:
        ValueError: the machine has no such accelerator or not so many devices.
        RuntimeError: the first epoch's scores were not finite already.
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
        try:
            trainer = lightning.Trainer(
                accelerator=settings.accelerator,
                devices=settings.devices,
                max_epochs=settings.epochs,
                callbacks=[best, EarlyStopping("validation_error", patience=settings.patience), _Epochs(train, tell)],
                default_root_dir=folder,
                logger=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                num_sanity_val_steps=0,
                gradient_clip_val=gradient_clip,
            )
        except MisconfigurationException as error:
            raise ValueError(f"accelerator '{settings.accelerator}', devices {settings.devices}: {error}") from error
        module.train()
        validating = DataLoader(validation, batch_size=None)
        with _keyboard_interrupt():
            trainer.fit(
                module,
                DataLoader(train, batch_size=None),
                validating,
                ckpt_path=resume if resume.exists() else None,
                weights_only=False,
            )
        ran_through = trainer.current_epoch >= settings.epochs
        state = {name: tensor.detach().cpu() for name, tensor in module.state_dict().items()}
        validation_error = trainer.validate(module, validating, verbose=False)[0]["validation_error"]
        if not (ran_through and math.isfinite(validation_error)):
            assert best.best_model_score is not None, "an epoch was validated"
            validation_error = float(best.best_model_score)
            if not math.isfinite(validation_error):
                raise RuntimeError("the training diverged in its first epoch; a lower learning_rate may help")
            state = torch.load(best.best_model_path, weights_only=True, map_location="cpu")["state_dict"]
        trainer.strategy.barrier()  # the caller may remove the folder once every process has read it
    return Trained(state, validation_error)


@contextmanager
def _keyboard_interrupt() -> Iterator[None]:
    """Lightning answers Ctrl-C by ending the process; here it is what it is everywhere else."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as end:
        if not isinstance(end.__context__, KeyboardInterrupt):
            raise
        signal.signal(signal.SIGINT, handler)
        raise KeyboardInterrupt from None


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
