from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.command import assert_mistake, call, call_json
from tvm_gnn_cost.scoring.checkpoint import Checkpoint

HELD_OUT = ("--held-out", "net1")


def test_a_model_is_written_with_its_card(store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "model.safetensors"
    trained = call_json(capfd, "train", store, model, *HELD_OUT, "--epochs", 2)
    assert trained["output"] == str(model)
    assert trained["training"]["train_programs"] + trained["training"]["validation_programs"] == 36
    assert trained["training"]["epochs"] == 2
    assert Checkpoint.load(model).card["networks"] == ["net0"]
    assert [path.name for path in tmp_path.iterdir()] == [model.name]


@pytest.mark.needs("tvm")
def test_tvms_own_model_is_trained_too(store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trained = call_json(capfd, "train", store, tmp_path / "trees.json", "--model", "xgb", *HELD_OUT)
    assert trained["training"] == {"train_programs": 36}
    assert json.loads((tmp_path / "trees.json").read_text())["learner"]


def test_training_can_start_from_a_checkpoint(store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "first.safetensors", tmp_path / "second.safetensors"
    call_json(capfd, "train", store, first, *HELD_OUT, "--epochs", 1)
    call_json(capfd, "train", store, second, *HELD_OUT, "--epochs", 1, "--start", first)
    one, two = Checkpoint.load(first), Checkpoint.load(second)
    np.testing.assert_array_equal(one.vectors.rows, two.vectors.rows)
    assert any(not np.array_equal(one.state[name], two.state[name]) for name in one.state)


@pytest.mark.slow
def test_two_devices_train_one_model(store: Path, tmp_path: Path) -> None:
    # A process of its own: DDP runs the command of the process once more for its second device.
    command = [Path(sys.executable).with_name("tvm-gnn-cost"), "train", store, tmp_path / "model.safetensors"]
    options = [*HELD_OUT, "--epochs", 2, "--devices", 2, "--json", "-"]
    ran = subprocess.run([str(part) for part in command + options], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("\n") == 1  # only one of the two processes prints
    assert json.loads(ran.stdout)["training"]["devices"] == 2
    assert Checkpoint.load(tmp_path / "model.safetensors").card["training"]["train_tasks"] == 2
    assert not list(tmp_path.glob("*.unfinished"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("{store}", "out.safetensors", "--held-out", "alexnet"), "'alexnet' does not occur"),
        (("{store}", "out.safetensors", *HELD_OUT, "--loss", "hings"), "unknown loss 'hings'"),
        (("{store}/empty", "out.safetensors"), "there is no folder "),
        (
            ("{store}", "out.safetensors", *HELD_OUT, "--start", "no.safetensors"),
            "cost model 'no.safetensors': neither gnn nor",
        ),
        (
            ("{store}", "out.safetensors", *HELD_OUT, "--learning-rate", "inf"),
            "learning_rate must be between 1e-12 and",
        ),
        (
            ("{store}", "out.safetensors", *HELD_OUT, "--epochs", "99999999999999"),
            "epochs must be between 1 and 100000",
        ),
        (("{store}", "out.safetensors", *HELD_OUT, "--devices", "99999999"), "devices must be between 1 and 64"),
        (
            ("{store}", "out.safetensors", *HELD_OUT, "--seed", "99999999999999"),
            "seed must be between 0 and 2147483647",
        ),
        (("{store}", "out.safetensors", *HELD_OUT, "--accelerator", "abacus"), "accelerator 'abacus'"),
    ],
)
def test_a_mistake_gets_one_sentence(
    arguments: tuple[str, ...],
    sentence: str,
    store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert_mistake(call(capfd, "train", *(argument.format(store=store) for argument in arguments)), sentence)
    assert not list(tmp_path.glob("out.safetensors"))
