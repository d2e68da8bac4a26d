"""A full disk and misplaced files: each command says in one sentence what it cannot write.

A limit on the size of files stands for the disk: a write that goes beyond it fails as on a full disk, with EFBIG
instead of ENOSPC. /dev/full fails with ENOSPC.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import assert_mistake, call
from tests.tpugraphs.modules import small_module
from tests.tpugraphs.trained import COLLECTION, Example, example, one_thread
from tests.tuning.test_result import END_TO_END, result
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.scoring.checkpoint import Checkpoint

__all__ = ["example", "one_thread"]

#: Bytes: enough for Python to find a folder for temporary files, and for nothing else.
_LITTLE = 64

HELD_OUT = ("--held-out", "net1", "--epochs", 1)


def run_limited(limit: int, *arguments: object) -> tuple[int, str, str]:
    """A command in a process of its own that can write files of so many bytes."""
    script = (
        "import resource, sys; from tvm_gnn_cost.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv.pop(1)),) * 2); main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(limit), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=os.environ | {"COLUMNS": "200", "NO_COLOR": "1", "PYTHONDONTWRITEBYTECODE": "1"},
    )
    return done.returncode, done.stdout, done.stderr


def assert_names(answer: tuple[int, str, str], path: Path) -> None:
    """The command failed with a sentence of its own that names the file or folder."""
    code, _, err = answer
    assert code == 2, err
    (sentence,) = [line for line in err.splitlines() if line.startswith("error: ")]
    assert str(path) in sentence
    assert "Traceback" not in err


@pytest.mark.parametrize(("limit", "name"), [(_LITTLE, "settings.json"), (4096, "best.ckpt")])
def test_a_training_names_what_it_cannot_write(
    limit: int, name: str, store: Path, checkpoint: str, tmp_path: Path
) -> None:
    # With vectors of node types, which are trained elsewhere on the disk.
    answer = run_limited(limit, "train", store, tmp_path / "m.safetensors", *HELD_OUT, "--start", checkpoint)
    assert_names(answer, tmp_path / "m.safetensors.unfinished" / name)
    assert not (tmp_path / "m.safetensors").exists()


def test_a_checkpoint_that_cannot_be_written_does_not_cost_the_training(
    store: Path,
    checkpoint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    model = tmp_path / "m.safetensors"
    command = ("train", store, model, *HELD_OUT, "--start", checkpoint)

    def fail(_self: Checkpoint, path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "save", fail)
        assert_names(call(capfd, *command), model)
    assert (tmp_path / "m.safetensors.unfinished" / "last.ckpt").is_file()
    code, _, err = call(capfd, *command)
    assert code == 0, err
    assert "epoch 1" not in err
    assert [path.name for path in tmp_path.iterdir()] == [model.name]


def test_tpugraphs_commands(example: Example, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.pb").write_bytes(small_module().SerializeToString())
    models = ("--model", f"{COLLECTION}={example.models}", "--permutations", 1)
    training = ("--epochs", 1, "--set", "channels=16", "--folds", 4, "--trained", 1, "--kept", 1)
    prepared = tmp_path / "prepared" / "layout-xla-random" / "train" / "g0.npy"
    for limit, arguments, path in (
        (_LITTLE, ("encode", tmp_path / "m.pb", tmp_path / "npz", "--source", "hlo"), tmp_path / "npz" / "small.npz"),
        (_LITTLE, ("prepare", example.root, tmp_path / "prepared"), prepared),
        (8192, ("train", example.prepared, COLLECTION, tmp_path / "new", *training), tmp_path / "new" / "fold-0.fit"),
    ):
        assert_names(run_limited(limit, "tpugraphs", *arguments), path)
    assert_names(call(capfd, "tpugraphs", "evaluate", example.root, *models, "--json", "/dev/full"), Path("/dev/full"))


@pytest.mark.slow
@pytest.mark.needs("tvm")
def test_commands_that_measure(tmp_path: Path) -> None:
    name = scheduler().name
    is_meta = name == "meta-schedule"
    network = "perceptron" if is_meta else "mlp"
    card = tmp_path / "data" / ("card.json" if is_meta else "cpu.card.json")
    options = ("--scheduler", name, "--random", 2, "--guided", 0, "--patience", 0)
    assert_names(run_limited(_LITTLE, "collect", "softmax/0", tmp_path / "data", *options), card)
    options = ("--scheduler", name, "--trials", 0, "--no-compare", "--work-dir", tmp_path / "work")
    assert_names(run_limited(_LITTLE, "tune", network, *options), tmp_path / "work" / "tuning.json")


@pytest.mark.needs("s_tir")
def test_a_store_that_cannot_be_written(measured: Path, tmp_path: Path) -> None:
    from tvm_gnn_cost import extract

    answer = run_limited(_LITTLE, "extract", measured, tmp_path / "store")
    assert_names(answer, tmp_path / "store" / "shard-00000.parquet")
    assert extract(measured, tmp_path / "store").added == 6


def test_a_result_goes_to_a_full_device(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    finished = result()
    finished.end_to_end = END_TO_END
    finished.save(tmp_path)
    assert_names(call(capfd, "report", tmp_path, "--json", "/dev/full"), Path("/dev/full"))


def test_a_folder_where_a_file_belongs(
    store: Path, example: Example, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    models = ("--model", f"{COLLECTION}={example.models}")
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "kept").write_text("")
    sentence = f"error: {folder} is a folder; expected a file"
    for arguments in (
        ("train", store, folder, *HELD_OUT),
        ("embed", store, folder),
        ("tpugraphs", "rank", example.root, folder, *models),
        ("tpugraphs", "evaluate", example.root, *models, "--json", folder),
    ):
        assert_mistake(call(capfd, *arguments), sentence)
    for arguments in (
        ("evaluate", store, "--model", folder, "--network", "net1"),
        ("tpugraphs", "encode", folder, tmp_path / "npz", "--source", "hlo"),
        ("tpugraphs", "rank", example.root, tmp_path / "out.csv", "--model", f"{COLLECTION}={folder}"),
    ):
        assert_mistake(call(capfd, *arguments), str(folder))
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    assert [path.name for path in folder.iterdir()] == ["kept"]


def test_a_file_where_a_folder_belongs(example: Example, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.pb").write_bytes(small_module().SerializeToString())
    file = tmp_path / "file"
    file.write_text("kept")
    for out in (file, file / "below"):
        for arguments in (
            ("tpugraphs", "encode", tmp_path / "m.pb", out, "--source", "hlo"),
            ("tpugraphs", "prepare", example.root, out),
            ("tpugraphs", "train", example.prepared, COLLECTION, out),
            ("tpugraphs", "measure", out, "--network", "perceptron-a"),
        ):
            assert_mistake(call(capfd, *arguments), f"error: {file} is a file; expected a folder")
    for arguments in (
        ("report", file),
        ("train", file, tmp_path / "m.safetensors"),
        ("tpugraphs", "prepare", file, tmp_path / "out"),
        ("tpugraphs", "train", file, COLLECTION, tmp_path / "out"),
    ):
        assert_mistake(call(capfd, *arguments), str(file))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "m.pb"]
    assert file.read_text() == "kept"


@pytest.mark.needs("tvm")
def test_a_file_where_a_folder_of_measurements_belongs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "file"
    file.write_text(json.dumps({}))
    name = scheduler().name
    network = "perceptron" if name == "meta-schedule" else "mlp"
    for arguments in (
        ("collect", "softmax/0", file, "--scheduler", name),
        ("tune", network, "--scheduler", name, "--work-dir", file),
    ):
        assert_mistake(call(capfd, *arguments), f"error: {file} is a file; expected a folder")
    for arguments in (("extract", file, tmp_path / "store"), ("evaluate", file, "--model", "constant")):
        assert_mistake(call(capfd, *arguments), str(file))
    assert file.read_text() == "{}"
