"""The commands from measured programs to a trained model, called in this process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import synthetic
from tests.command import call
from tests.datasets.small_database import Database, database  # noqa: F401 (a fixture)
from tvm_gnn_cost.datasets.programs import RaggedFeatures
from tvm_gnn_cost.datasets.store import GraphStore
from tvm_gnn_cost.training.checkpoint import Checkpoint

HELD_OUT = ("--held-out", "net1")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with six tasks, half of them of the network net1, and features that say what the graphs say."""
    programs = synthetic.programs(6, 12)
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(2 * len(programs), 164)).astype(np.float32)
    rows[:, 0] = np.repeat(np.log(programs.latency), 2)
    features = RaggedFeatures(rows, np.arange(0, 2 * len(programs) + 1, 2, dtype=np.int64))
    folder = tmp_path_factory.mktemp("store")
    object.__setattr__(programs, "per_store_features", features)
    GraphStore(folder).append(programs)
    return folder


def result(answer: tuple[int, str, str]) -> dict[str, Any]:
    code, out, err = answer
    assert code == 0, err
    assert out.count("\n") == 1
    found: dict[str, Any] = json.loads(out)
    return found


def test_train_and_evaluate(store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model, trees = tmp_path / "model.safetensors", tmp_path / "trees.json"
    trained = result(call(capfd, "train", store, model, *HELD_OUT, "--epochs", 2, "--json", "-"))
    assert trained["training"]["train_programs"] + trained["training"]["validation_programs"] == 36
    assert trained["training"]["epochs"] == 2
    assert Checkpoint.load(model).card["networks"] == ["net0"]
    assert not list(tmp_path.glob("*.unfinished"))
    result(call(capfd, "train", store, trees, "--model", "xgb", *HELD_OUT, "--json", "-"))
    names = [str(model), f"xgb:{trees}", "random", "constant", "node-count"]
    options = [part for name in names for part in ("--model", name)]
    found = result(call(capfd, "evaluate", store, *options, "--network", "net1", "--json", "-"))
    assert set(found["models"]) == set(names)
    # Those features give the latency away, and a constant knows nothing.
    assert found["models"][f"xgb:{trees}"]["pairwise_accuracy"] > 0.8
    assert found["models"]["constant"]["pairwise_accuracy"] == 0.5
    assert len(found["tasks"]["random"]) == 3
    assert found["trained_on"] == {name: [] for name in names}
    code, out, err = call(capfd, "evaluate", store, "--model", model, "--network", "net1")
    assert (code, out) == (0, "")
    assert "pairwise_accuracy ↑" in err
    assert "warning" not in err


def test_a_network_that_a_model_was_trained_on_is_told(
    store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model, out = tmp_path / "model.safetensors", tmp_path / "result.json"
    result(call(capfd, "train", store, model, *HELD_OUT, "--epochs", 1, "--json", "-"))
    options = ("--model", model, "--model", "random", "--network", "net0", "--network", "net1", "--json", out)
    code, _, err = call(capfd, "evaluate", store, *options)
    assert code == 0
    assert f"warning: {model} was trained on net0;" in err
    assert json.loads(out.read_text())["trained_on"] == {str(model): ["net0"], "random": []}


def test_training_can_start_from_a_checkpoint(store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "first.safetensors", tmp_path / "second.safetensors"
    result(call(capfd, "train", store, first, *HELD_OUT, "--epochs", 1, "--json", "-"))
    result(call(capfd, "train", store, second, *HELD_OUT, "--epochs", 1, "--start", first, "--json", "-"))
    one, two = Checkpoint.load(first), Checkpoint.load(second)
    np.testing.assert_array_equal(one.vectors.rows, two.vectors.rows)
    assert any(not np.array_equal(one.state[name], two.state[name]) for name in one.state)


def test_two_devices_train_one_model(store: Path, tmp_path: Path) -> None:
    # A process of its own: DDP runs the command of the process once more for its second device.
    command = [Path(sys.executable).with_name("tvm-gnn-cost"), "train", store, tmp_path / "model.safetensors"]
    options = [*HELD_OUT, "--epochs", 2, "--devices", 2, "--json", "-"]
    ran = subprocess.run([str(part) for part in command + options], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.count("\n") == 1  # one of the two processes speaks
    assert json.loads(ran.stdout)["training"]["devices"] == 2
    assert Checkpoint.load(tmp_path / "model.safetensors").card["training"]["train_tasks"] == 2
    assert not list(tmp_path.glob("*.unfinished"))


def test_embed_draws_the_types(store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    found = result(call(capfd, "embed", store, tmp_path / "types.png", "--json", "-"))
    assert set(synthetic.TYPES) <= set(found["types"])
    assert (tmp_path / "types.png").read_bytes().startswith(b"\x89PNG")


def test_extract_a_measured_database(
    database: Database,  # noqa: F811
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    first = result(call(capfd, "extract", database.folder, tmp_path / "store", "--json", "-"))
    assert first["added"] == len(database.mods)
    again = result(call(capfd, "extract", database.folder, tmp_path / "store", "--json", "-"))
    assert (again["added"], again["known"]) == (0, len(database.mods))
    code, _, err = call(capfd, "extract", database.folder, tmp_path / "store", "--detail", "tree")
    assert code == 2
    assert "holds graphs of detail 'statements'" in err
    assert GraphStore(tmp_path / "store").detail() == "statements"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("evaluate", "{store}", "--model", "nothing.safetensors", "--network", "net1"), "there is no such checkpoint"),
        (("evaluate", "{store}", "--model", "xgb:nothing.json", "--network", "net1"), "nothing.json"),
        (("evaluate", "{store}", "--model", "random", "--network", "alexnet"), "it has: net0, net1"),
        (
            ("evaluate", "{store}", "--model", "random", "--network", "net1", "--network", "nett0"),
            "network 'nett0' does",
        ),
        (("evaluate", "{store}", "--model", "random", "--hardware", "cpu"), "--hardware is for a folder in TenSet's"),
        (("train", "{store}", "out.safetensors", "--held-out", "alexnet"), "'alexnet' does not occur"),
        (("train", "{store}", "out.safetensors", *HELD_OUT, "--loss", "hings"), "unknown loss 'hings'"),
        (("train", "{store}/empty", "out.safetensors"), "holds no program"),
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
    code, out, err = call(capfd, *(argument.format(store=store) for argument in arguments))
    assert code == 2
    assert out == ""
    assert sentence in err
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())
