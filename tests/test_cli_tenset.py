"""The commands on a folder in TenSet's layout: extract, train, evaluate."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.command import call
from tests.graphs.ansor_tasks import copy_records, project_data, task_key
from tvm_gnn_cost.datasets import extract_tenset


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few records of five tasks of ResNet-18 and of ten others, and one that is none."""
    out = tmp_path_factory.mktemp("tenset") / "data"
    data = project_data()
    tests = [file for file in data.files if "resnet_18" in data.weights.get(task_key(file), {})]
    others = [file for file in data.files if file not in tests]
    copy_records(out, [*tests[:5], *others[:10]], 10)
    (out / "measure_records" / "cpu" / "broken.json").write_text("no JSON\n")
    return out


def test_from_records_to_an_evaluation(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    def run(*arguments: object) -> str:
        code, out, err = call(capfd, *arguments)
        assert code == 0, err
        return out

    store, trees, model = tmp_path / "store", tmp_path / "trees.json", tmp_path / "model.safetensors"
    extracted = json.loads(run("extract", folder, store, "--json", "-"))
    assert extracted == {"store": str(store), "added": 150, "known": 0, "left_out": 1}

    held_out = ("--held-out", "resnet_18")
    run("train", store, trees, "--model", "xgb", *held_out)
    run("train", store, model, "--epochs", 1, *held_out)

    out = tmp_path / "result.json"
    names = [str(model), f"xgb:{trees}", "random", "constant"]
    models = [part for name in names for part in ("--model", name)]
    run("evaluate", folder, *models, "--network", "resnet_18", "--json", out)
    found = json.loads(out.read_text())
    assert found["networks"] == ["resnet_18"]
    assert found["left_out"] == 1
    assert set(found["models"]) == set(found["tasks"]) == set(names)
    for name in names:
        assert {"huber", "rmse", "pairwise_accuracy", "kendall_tau", "top1", "top5"} <= set(found["models"][name])
        assert len(found["tasks"][name]) == 5
    assert found["models"]["constant"]["pairwise_accuracy"] == 0.5
    # The same programs from the store. TVM's own features name stores and buffers in the order of their addresses, so
    # those of some programs differ from one process to the next, and XGBoost's predictions with them.
    stored = json.loads(run("evaluate", store, *models, "--network", "resnet_18", "--json", "-"))
    for name in (str(model), "random", "constant"):
        assert stored["models"][name] == pytest.approx(found["models"][name])


def test_mistakes_get_one_sentence(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    for arguments, sentence in (
        (("extract", folder, tmp_path / "a", "--hardware", "t4"), "no folder t4"),
        (("extract", tmp_path, tmp_path / "a"), "found that of bitblas"),
        (("tune", "--network", "nosuch", "--scheduler", "auto-scheduler"), "unknown network 'nosuch'"),
    ):
        code, _, err = call(capfd, *arguments)
        assert code in (1, 2)
        assert sentence in err.replace("\n", " ")
        assert "Traceback" not in err


def test_evaluate_finds_mistakes_before_it_extracts(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    def extract(*_: object, **__: object) -> None:
        raise AssertionError("nothing is to be extracted")

    monkeypatch.setattr(extract_tenset, "extract_tenset", extract)
    for arguments, sentence in (
        (("--model", "random", "--network", "resnet_18", "--network", "resnet18"), "network 'resnet18' does not occur"),
        (("--model", "random", "--model", "nothing.safetensors"), "nothing.safetensors"),
        (("--model", "random", "--model", "xgb:nothing.json"), "nothing.json"),
    ):
        code, _, err = call(capfd, "evaluate", folder, *arguments)
        assert code == 2
        assert sentence in err


def test_evaluate_says_why_nothing_can_be_read(folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    files = sorted((copy / "measure_records" / "cpu").glob("*.json"))
    for file in files:
        file.write_text(f"no JSON {file.name}\n")
    code, _, err = call(capfd, "evaluate", copy, "--model", "random", "--network", "resnet_18")
    assert code == 2
    assert all(f"left out: {file}:1: not JSON" in err for file in files)
    assert f"error: none of the {len(files)} records of {copy} could be read" in err
