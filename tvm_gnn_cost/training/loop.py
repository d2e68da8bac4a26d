"""The training loop of all models: Lightning, silent, resumable, and without effect on the caller's random numbers."""

from __future__ import annotations

import io
import logging
import math
import signal
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import lightning
import torch
from lightning.fabric.plugins.io.torch_io import TorchCheckpointIO
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from lightning.pytorch.trainer.states import TrainerFn
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.files import replacing, write_text

#: Called after each epoch with its number, counted from 1, and its metrics.
OnEpoch = Callable[[int, dict[str, float]], None]

_ACCELERATORS = ("cpu", "gpu", "auto")


class LoopSettings(Protocol):
    """The settings that the loop reads."""

    @property
    def seed(self) -> int:
        """Seeds every random number of the training."""

    @property
    def epochs(self) -> int:
        """Largest number of epochs."""

    @property
    def patience(self) -> int:
        """Number of epochs without a lower validation error after which the training stops."""

    @property
    def accelerator(self) -> str:
        """Accelerator for Lightning: ``cpu``, ``gpu`` or ``auto``."""

    @property
    def devices(self) -> int | str:
        """Devices for Lightning: their number, or ``auto``."""


class EpochSteps(IterableDataset[Any]):
    """The steps of an epoch.

    Attributes:
        epoch: Number of the epoch, counted from 0, to seed what is drawn anew in each; :func:`run` sets it.
    """

    epoch = 0


@dataclass(frozen=True)
class Trained:
    """Result of a training.

    Attributes:
        state: Weights of the module after the last epoch, or after the best one if the training stopped early.
        validation_error: Validation error of these weights.
        history: Metric -> its value after each epoch, those before an interruption included.
    """

    state: dict[str, Tensor]
    validation_error: float
    history: dict[str, list[float]]


def _gpus() -> list[int]:
    """The index of the current GPU; empty if this process has not used CUDA, which then has no random state to keep."""
    return [torch.cuda.current_device()] if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]


class _Epochs(Callback):
    """Sets the number of each epoch, keeps its metrics and calls ``on_epoch`` after it.

    Saves torch's random state in each checkpoint, that of the GPU in use too, so that a resumed training draws the same
    numbers.
    """

    def __init__(self, steps: EpochSteps, on_epoch: OnEpoch) -> None:
        self.steps, self.on_epoch = steps, on_epoch
        self.history: dict[str, list[float]] = {}
        self._losses: list[Tensor] = []

    def on_train_epoch_start(self, trainer: lightning.Trainer, _module: lightning.LightningModule) -> None:
        self.steps.epoch = trainer.current_epoch
        self._losses = []

    def on_train_batch_end(self, _trainer: Any, _module: Any, outputs: Any, _batch: Any, _index: int) -> None:
        self._losses.append(outputs["loss"].detach())

    def on_validation_epoch_end(self, trainer: lightning.Trainer, _module: lightning.LightningModule) -> None:
        if trainer.state.fn == TrainerFn.FITTING:
            # What a module logs in training is ready after the validation only, one epoch late for the callers.
            metrics = {"train_loss": float(torch.stack(self._losses).mean())}
            metrics |= {name: float(value) for name, value in trainer.callback_metrics.items()}
            for name, value in metrics.items():
                self.history.setdefault(name, []).append(value)
            self.on_epoch(trainer.current_epoch + 1, metrics)

    def state_dict(self) -> dict[str, Any]:
        states = {"random": torch.get_rng_state(), "history": self.history}
        return states | {"cuda": torch.cuda.get_rng_state()} if _gpus() else states

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        torch.set_rng_state(state_dict["random"])
        if "cuda" in state_dict and _gpus():
            torch.cuda.set_rng_state(state_dict["cuda"])
        self.history = state_dict.get("history", {})  # a version before 0.3 did not save it


class _Stopping(EarlyStopping):
    """Early stopping that also holds when a training that was stopped is resumed: its last epoch is saved by then."""

    def on_train_start(self, trainer: lightning.Trainer, _module: lightning.LightningModule) -> None:
        trainer.should_stop = self.stopped_epoch > 0


class _WholeCheckpoints(TorchCheckpointIO):
    """Writes Lightning's checkpoints like all other files.

    Lightning writes them in the system's folder of temporary files and moves them, which is a copy if that is on
    another disk, and its errors do not say which file could not be written.
    """

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:  # noqa: ARG002
        content = io.BytesIO()
        torch.save(checkpoint, content)
        with replacing(Path(path)) as unfinished:
            unfinished.write_bytes(content.getbuffer())


def run(
    module: lightning.LightningModule,
    train: EpochSteps,
    validation: IterableDataset[Any],
    settings: LoopSettings,
    fingerprint: str,
    folder: Path,
    on_epoch: OnEpoch,
    gradient_clip: float = 1.0,
) -> Trained:
    """Trains a module that logs ``validation_error``, infinite if its scores are not finite.

    An interrupted training resumes from ``folder/last.ckpt`` if the function is called again with the same fingerprint.

    Args:
        module: The model with its loss and its optimizer.
        train: Training steps of an epoch.
        validation: Validation steps.
        settings: Settings of the loop.
        fingerprint: Text that identifies the settings; a training with another fingerprint starts anew.
        folder: Folder of Lightning's checkpoints.
        on_epoch: Called after each epoch with its number and metrics.
        gradient_clip: Largest norm of a step's gradient.

    Raises:
        InputError: the machine has no such accelerator or not so many devices, or a checkpoint there is damaged.
        OSError: a checkpoint cannot be written.
        WorkError: the training diverged in its first epoch.
    """
    if settings.accelerator not in _ACCELERATORS:
        raise InputError(f"accelerator '{settings.accelerator}' is none of: {', '.join(_ACCELERATORS)}")
    folder.mkdir(parents=True, exist_ok=True)
    # The best epoch and the last one in Lightning's own format, which only this function reads. The last one has a
    # callback of its own, because with save_last it is saved only when it is the best.
    best = ModelCheckpoint(folder, "best", monitor="validation_error", enable_version_counter=False)
    last = ModelCheckpoint(folder, "last", enable_version_counter=False)
    epochs = _Epochs(train, on_epoch)
    stopping = _Stopping("validation_error", patience=settings.patience)
    resume = folder / "last.ckpt"
    marker = folder / "settings.json"
    if resume.exists() and (not marker.exists() or marker.read_text() != fingerprint):
        resume.unlink()
    for saved in (resume, folder / "best.ckpt") if resume.exists() else ():
        if not zipfile.is_zipfile(saved):
            raise InputError(f"{saved}: the unfinished training is damaged; remove {folder} to start anew")
    write_text(marker, fingerprint)
    with warnings.catch_warnings(), _quiet_lightning(), torch.random.fork_rng(devices=_gpus()):
        warnings.simplefilter("ignore")
        torch.manual_seed(settings.seed)
        try:
            trainer = lightning.Trainer(
                accelerator=settings.accelerator,
                devices=settings.devices,
                max_epochs=settings.epochs,
                callbacks=[best, last, stopping, epochs],
                plugins=[_WholeCheckpoints()],
                default_root_dir=folder,
                logger=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                num_sanity_val_steps=0,
                gradient_clip_val=gradient_clip,
            )
        except (MisconfigurationException, TypeError) as error:
            # Lightning reports a wrong number of devices with either of these; the other arguments are constants.
            raise InputError(f"accelerator '{settings.accelerator}', devices {settings.devices}: {error}") from error
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
                raise WorkError("the training diverged in its first epoch; a lower learning_rate may help")
            state = torch.load(best.best_model_path, weights_only=True, map_location="cpu")["state_dict"]
        trainer.strategy.barrier()  # Every process has read the folder before a caller removes it.
    return Trained(state, validation_error, epochs.history)


@contextmanager
def _keyboard_interrupt() -> Iterator[None]:
    """Raises KeyboardInterrupt on Ctrl-C as usual; Lightning would end the process."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as end:
        if not isinstance(end.__context__, KeyboardInterrupt):
            raise
        signal.signal(signal.SIGINT, handler)
        raise KeyboardInterrupt from None


class _quiet_lightning:
    """Silences Lightning's greetings and tips, which it logs."""

    def __enter__(self) -> None:
        self.loggers = [logging.getLogger(n) for n in ("lightning.pytorch", "lightning.fabric", "lightning")]
        self.levels = [logger.level for logger in self.loggers]
        for logger in self.loggers:
            logger.setLevel(logging.ERROR)

    def __exit__(self, *_error: object) -> None:
        for logger, level in zip(self.loggers, self.levels, strict=True):
            logger.setLevel(level)
