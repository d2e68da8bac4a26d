from __future__ import annotations

import errno
import logging
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import lightning
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import IterableDataset

from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.training.loop import EpochSteps, OnEpoch, Trained, run


@dataclass(frozen=True)
class Settings:
    seed: int = 0
    epochs: int = 4
    patience: int = 10
    accelerator: str = "cpu"
    devices: int | str = 1


class Steps(EpochSteps):
    """Three steps of an epoch; each one is the epoch's number."""

    def __iter__(self) -> Iterator[Tensor]:
        yield from [torch.tensor(float(self.epoch))] * 3

    def __len__(self) -> int:
        return 3


class Validation(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Tensor]:
        yield torch.zeros(1)


class Counter(lightning.LightningModule):
    """Adds 1 to ``weight`` in each step; its validation errors are given, one for each epoch."""

    generator: torch.Generator | None = None

    def __init__(self, errors: list[float]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))
        self.errors = errors
        self.seen: list[float] = []
        self.drawn: list[float] = []

    def training_step(self, step: Tensor, _index: int) -> Tensor:
        self.seen.append(step.item())
        self.drawn.append(torch.rand(1, generator=self.generator).item())
        return -self.weight.sum()

    def validation_step(self, _step: Tensor, _index: int) -> None:
        epochs = round(self.weight.item() / 3)
        self.log("validation_error", torch.tensor(self.errors[epochs - 1]), batch_size=1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 1.0)


def train(
    module: Counter,
    folder: Path,
    settings: Settings | None = None,
    on_epoch: OnEpoch = lambda _epoch, _metrics: None,
    fingerprint: str = "settings",
) -> Trained:
    return run(module, Steps(), Validation(), settings or Settings(), fingerprint, folder, on_epoch)


def test_a_training_that_is_not_stopped_keeps_its_last_epoch(tmp_path: Path) -> None:
    told: list[tuple[int, float]] = []
    module = Counter([0.5, 0.25, 0.3, 0.4])
    found = train(module, tmp_path, on_epoch=lambda epoch, metrics: told.append((epoch, metrics["validation_error"])))
    assert found.state["weight"].item() == pytest.approx(12, rel=1e-4)
    assert found.validation_error == pytest.approx(0.4)
    assert told == [(i, pytest.approx(error)) for i, error in enumerate((0.5, 0.25, 0.3, 0.4), 1)]
    # The steps know the epoch that they belong to.
    assert module.seen == [0.0] * 3 + [1.0] * 3 + [2.0] * 3 + [3.0] * 3


def test_a_training_that_is_stopped_keeps_its_best_epoch(tmp_path: Path) -> None:
    module = Counter([0.5, 0.25, 0.3, 0.4, 0.1, 0.1])
    found = train(module, tmp_path, Settings(epochs=6, patience=2))
    assert module.seen[-1] == 3
    assert found.state["weight"].item() == pytest.approx(6, rel=1e-4)
    assert found.validation_error == pytest.approx(0.25)


def test_a_training_that_diverges_keeps_its_best_epoch(tmp_path: Path) -> None:
    found = train(Counter([0.5, 0.25, float("inf"), float("inf")]), tmp_path)
    assert found.state["weight"].item() == pytest.approx(6, rel=1e-4)
    assert found.validation_error == pytest.approx(0.25)


def test_a_training_that_diverges_at_once_has_failed(tmp_path: Path) -> None:
    with pytest.raises(WorkError, match="the training diverged in its first epoch; a lower learning_rate may help"):
        train(Counter([float("inf")] * 4), tmp_path)


def interrupted(folder: Path) -> Counter:
    """A training that was interrupted in its third epoch."""
    module = Counter([0.5, 0.4, 0.3, 0.2])

    def interrupt(epoch: int, _metrics: dict[str, float]) -> None:
        if epoch == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(module, folder, on_epoch=interrupt)
    return module


def test_an_interrupted_training_goes_on_where_it_was(tmp_path: Path) -> None:
    whole, resumed = Counter([0.5, 0.4, 0.3, 0.2]), Counter([0.5, 0.4, 0.3, 0.2])
    train(whole, tmp_path / "whole")
    interrupted(tmp_path / "folder")
    told: list[int] = []
    found = train(resumed, tmp_path / "folder", on_epoch=lambda epoch, _metrics: told.append(epoch))
    assert told == [3, 4]
    assert found.state["weight"].item() == pytest.approx(12, rel=1e-4)
    # It draws the random numbers that it would have drawn.
    assert resumed.drawn == whole.drawn[-len(resumed.drawn) :]


def test_random_numbers_of_a_gpu_are_resumed_and_the_callers_restored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = torch.Generator()
    monkeypatch.setattr(Counter, "generator", gpu)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda _device=0: gpu.get_state())
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, _device=0: gpu.set_state(state))
    before = gpu.get_state()
    whole, resumed = Counter([0.5, 0.4, 0.3, 0.2]), Counter([0.5, 0.4, 0.3, 0.2])
    train(whole, tmp_path / "whole")
    assert torch.equal(gpu.get_state(), before)
    interrupted(tmp_path / "folder")
    train(resumed, tmp_path / "folder")
    assert len(set(whole.drawn)) == len(whole.drawn)
    assert resumed.drawn == whole.drawn[-len(resumed.drawn) :]


def test_epochs_that_are_not_the_best_are_not_lost(tmp_path: Path) -> None:
    def interrupt(epoch: int, _metrics: dict[str, float]) -> None:
        if epoch == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(Counter([0.1, 0.4, 0.5, 0.6]), tmp_path, on_epoch=interrupt)
    told: list[int] = []
    train(Counter([0.1, 0.4, 0.5, 0.6]), tmp_path, on_epoch=lambda epoch, _metrics: told.append(epoch))
    assert told == [4]


def test_a_training_that_was_stopped_is_not_trained_on(tmp_path: Path) -> None:
    errors, settings = [0.5, 0.25, 0.3, 0.4, 0.1, 0.1], Settings(epochs=6, patience=2)
    found = train(Counter(errors), tmp_path, settings)
    # Killed before its result was used.
    again = Counter(errors)
    assert train(again, tmp_path, settings) == found
    assert again.seen == []


def test_a_checkpoint_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_self: Path, _content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(OSError, match=rf"No space left on device: '{tmp_path}/(best|last)\.ckpt'"):
        train(Counter([0.5] * 4), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["settings.json"]


def test_checkpoints_are_written_beside_the_old_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Lightning writes them in the system's folder first, which may be on another disk or full.
    monkeypatch.setattr("tempfile.mkstemp", None)
    train(Counter([0.5] * 4), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best.ckpt", "last.ckpt", "settings.json"]


def test_other_settings_start_anew(tmp_path: Path) -> None:
    interrupted(tmp_path)
    module = Counter([0.5, 0.4, 0.3, 0.2])
    train(module, tmp_path, fingerprint="other settings")
    assert module.seen[0] == 0


@pytest.mark.parametrize("name", ["last.ckpt", "best.ckpt"])
def test_a_damaged_unfinished_training_is_named(tmp_path: Path, name: str) -> None:
    interrupted(tmp_path)
    whole = (tmp_path / name).read_bytes()
    for part in range(10):
        (tmp_path / name).write_bytes(whole[: len(whole) * part // 10])
        with pytest.raises(InputError, match=rf"{name}: the unfinished training is damaged; remove {tmp_path} to"):
            train(Counter([0.5] * 4), tmp_path)


def test_ctrl_c_is_a_keyboard_interrupt_as_everywhere(tmp_path: Path) -> None:
    # A shell that runs the tests in the background has them ignore the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            train(Counter([0.5] * 4), tmp_path, on_epoch=lambda _epoch, _metrics: os.kill(os.getpid(), signal.SIGINT))
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("accelerator", ["abacus", "", "tpu"])
def test_an_unknown_accelerator_is_named(tmp_path: Path, accelerator: str) -> None:
    with pytest.raises(InputError, match=f"^accelerator '{accelerator}' is none of: cpu, gpu, auto$"):
        train(Counter([0.5] * 4), tmp_path, Settings(accelerator=accelerator))


@pytest.mark.parametrize(
    ("accelerator", "devices"),
    [("cpu", 0), ("cpu", -1), ("cpu", "two")] + ([] if torch.cuda.is_available() else [("gpu", 1)]),
)
def test_devices_that_the_machine_does_not_have_are_named(tmp_path: Path, accelerator: str, devices: int | str) -> None:
    settings = replace(Settings(), accelerator=accelerator, devices=devices)
    with pytest.raises(InputError, match=f"^accelerator '{accelerator}', devices {devices}: "):
        train(Counter([0.5] * 4), tmp_path, settings)


def test_the_seed_decides_what_is_drawn_and_the_caller_notices_nothing(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    drawn = []
    for number, seed in enumerate((1, 1, 2)):
        module = Counter([0.5] * 4)
        train(module, tmp_path / str(number), Settings(seed=seed))
        drawn.append(module.drawn)
    assert torch.equal(torch.rand(1), expected)
    assert drawn[0] == drawn[1] != drawn[2]


def test_lightning_says_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    level = logging.getLogger("lightning.pytorch").level
    train(Counter([0.5] * 4), tmp_path)
    assert capfd.readouterr() == ("", "")
    assert not list(recwarn)
    assert logging.getLogger("lightning.pytorch").level == level


def test_gradients_are_clipped(tmp_path: Path) -> None:
    class Steep(Counter):
        def training_step(self, step: Tensor, index: int) -> Tensor:
            return 1000 * super().training_step(step, index)

    assert train(Steep([0.5] * 4), tmp_path).state["weight"].item() == pytest.approx(12, rel=1e-4)
