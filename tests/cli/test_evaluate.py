from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.command import assert_mistake, call, call_json
from tvm_gnn_cost.schedulers import scheduler

HELD_OUT = ("--held-out", "net1")


def options(*models: object) -> list[object]:
    return [part for model in models for part in ("--model", model)]


def test_models_are_ranked_side_by_side(store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "model.safetensors"
    call_json(capfd, "train", store, model, *HELD_OUT, "--epochs", 1)
    names = [str(model), "random", "constant", "node-count"]
    found = call_json(capfd, "evaluate", store, *options(*names), "--network", "net1")
    assert set(found["models"]) == set(found["tasks"]) == set(names)
    assert found["models"]["constant"]["pairwise_accuracy"] == 0.5
    assert len(found["tasks"]["random"]) == 3
    assert found["trained_on"] == {name: [] for name in names}
    code, out, err = call(capfd, "evaluate", store, "--model", model, "--network", "net1")
    assert (code, out) == (0, "")
    assert "pairwise_accuracy ↑" in err
    assert "warning" not in err


@pytest.mark.needs("tvm")
def test_tvms_own_model_is_ranked_too(store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    trees = tmp_path / "trees.json"
    call_json(capfd, "train", store, trees, "--model", "xgb", *HELD_OUT)
    found = call_json(capfd, "evaluate", store, *options(str(trees)), "--network", "net1")
    # The features of this store give the latency away.
    assert found["models"][str(trees)]["pairwise_accuracy"] > 0.8
    assert_mistake(call(capfd, "evaluate", store, *options("nothing.json"), "--network", "net1"), "nothing.json")


def test_a_network_that_a_model_was_trained_on_is_told(
    store: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    model, out = tmp_path / "model.safetensors", tmp_path / "result.json"
    call_json(capfd, "train", store, model, *HELD_OUT, "--epochs", 1)
    networks = ("--network", "net0", "--network", "net1", "--json", out)
    code, _, err = call(capfd, "evaluate", store, *options(model, "random"), *networks)
    assert code == 0
    assert f"warning: {model} was trained on net0;" in err
    assert json.loads(out.read_text())["trained_on"] == {str(model): ["net0"], "random": []}


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--model", "nothing.safetensors", "--network", "net1"), "there is no file nothing.safetensors"),
        (("--model", "random", "--network", "alexnet"), "it has: net0, net1"),
        (("--model", "random", "--network", "net1", "--network", "nett0"), "network 'nett0' does"),
        (("--model", "random", "--hardware", "cpu"), "hardware is for a folder in TenSet's"),
    ],
)
def test_a_mistake_gets_one_sentence(
    arguments: tuple[str, ...], sentence: str, store: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert_mistake(call(capfd, "evaluate", store, *arguments), sentence)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few records of five tasks of ResNet-18 and of ten others, and a line that is none."""
    from tests.schedulers.auto_scheduler.small_tasks import copy_records, project_data, task_key

    out = tmp_path_factory.mktemp("tenset") / "data"
    data = project_data()
    tests = [file for file in data.files if "resnet_18" in data.weights.get(task_key(file), {})]
    others = [file for file in data.files if file not in tests]
    copy_records(out, [*tests[:5], *others[:10]], 10)
    (out / "measure_records" / "cpu" / "broken.json").write_text("no JSON\n")
    return out


@pytest.mark.needs("auto_scheduler")
def test_from_records_in_tensets_layout_to_an_evaluation(
    records: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    store, trees, model = tmp_path / "store", tmp_path / "trees.json", tmp_path / "model.safetensors"
    extracted = call_json(capfd, "extract", records, store)
    assert extracted == {"store": str(store), "added": 150, "known": 0, "left_out": 1}
    held_out = ("--held-out", "resnet_18")
    call_json(capfd, "train", store, trees, "--model", "xgb", *held_out)
    call_json(capfd, "train", store, model, "--epochs", 1, *held_out)

    names = [str(model), str(trees), "random", "constant"]
    found = call_json(capfd, "evaluate", records, *options(*names), "--network", "resnet_18")
    assert found["networks"] == ["resnet_18"]
    assert found["left_out"] == 1
    assert set(found["models"]) == set(found["tasks"]) == set(names)
    for name in names:
        assert {"huber", "rmse", "pairwise_accuracy", "kendall_tau", "top1", "top5"} <= set(found["models"][name])
        assert len(found["tasks"][name]) == 5
    assert found["models"]["constant"]["pairwise_accuracy"] == 0.5
    # The same programs from the store. TVM's own features name stores and buffers in the order of their addresses, so
    # those of some programs differ from one process to the next, and XGBoost's predictions with them.
    stored = call_json(capfd, "evaluate", store, *options(*names), "--network", "resnet_18")
    for name in (str(model), "random", "constant"):
        assert stored["models"][name] == pytest.approx(found["models"][name])


@pytest.mark.needs("auto_scheduler")
def test_mistakes_are_found_before_anything_is_extracted(
    records: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def extract(*_: object, **__: object) -> None:
        raise AssertionError("nothing is to be extracted")

    monkeypatch.setattr("tvm_gnn_cost.tuning.evaluate.extract", extract)
    for arguments, sentence in (
        (("--model", "random", "--network", "resnet_18", "--network", "resnet18"), "network 'resnet18' does not occur"),
        (("--model", "random", "--model", "nothing.safetensors"), "nothing.safetensors"),
        (("--model", "random", "--model", "nothing.json"), "nothing.json"),
    ):
        assert_mistake(call(capfd, "evaluate", records, *arguments), sentence)


@pytest.mark.needs("auto_scheduler")
def test_what_cannot_be_read_is_named(records: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    copy = Path(shutil.copytree(records, tmp_path / "copy"))
    files = sorted((copy / "measure_records" / "cpu").glob("*.json"))
    for file in files:
        file.write_text(f"no JSON {file.name}\n")
    code, _, err = call(capfd, "evaluate", copy, "--model", "random", "--network", "resnet_18")
    assert code == 2
    assert all(f"left out: {file}:1: not JSON" in err for file in files)
    assert f"error: none of the {len(files)} records of {copy} could be read" in err
    assert scheduler().name == "auto-scheduler"
