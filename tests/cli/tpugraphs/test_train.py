from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command import call
from tests.tpugraphs.trained import COLLECTION, Example
from tvm_gnn_cost.cli.tpugraphs.train import ModelOption
from tvm_gnn_cost.tpugraphs.ranking.ranker import MODELS

OPTIONS = ("--epochs", 2, "--set", "channels=16", "--folds", 4, "--trained", 2, "--kept", 1)


def train(capfd: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    code, out, err = call(capfd, "tpugraphs", "train", *arguments, "--json", "-")
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def test_the_command_trains_what_the_function_trains(
    example: Example, tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    trained = train(capfd, example.prepared, COLLECTION, tmp_path / "models", *OPTIONS)
    assert set(trained) == {"folder", "graphs", "validation_errors"}
    assert (trained["graphs"], len(trained["validation_errors"]["0"])) == (4, 1)
    assert trained["validation_errors"] == {"0": example.trained.validation_errors[0]}
    for name in ("fold-0.safetensors", "fold-1.safetensors", "kept.json"):
        assert (tmp_path / "models" / name).read_bytes() == (example.models / name).read_bytes()


def test_each_seed_has_a_folder(example: Example, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    seeds = train(capfd, example.prepared, COLLECTION, tmp_path, *OPTIONS, "--seed", 3, "--seed", 4)
    assert set(seeds["validation_errors"]) == {"3", "4"}
    assert (tmp_path / "seed-4" / "kept.json").is_file()


def test_models_are_not_replaced_by_others(example: Example, capfd: pytest.CaptureFixture[str]):
    arguments = ("tpugraphs", "train", example.prepared, COLLECTION, example.models, *OPTIONS, "--model", "gru")
    code, _, err = call(capfd, *arguments)
    assert code == 2
    assert "fold-0.safetensors was trained on or with another model" in err.replace("\n", " ")


def test_mistakes_get_one_sentence(example: Example, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    there, out = example.prepared, tmp_path / "out"
    for arguments, sentence in (
        ((tmp_path, "tile:xla", out), "holds no prepared graph of tile:xla, train or valid"),
        ((tmp_path, "tile", out), "unknown collection 'tile'"),
        ((there, COLLECTION, out, "--set", "chanels=3"), "setting chanels=3: expected NAME=VALUE with one of"),
        ((there, COLLECTION, out, "--set", "seed=3"), "setting seed=3: expected NAME=VALUE with one of the names"),
        ((there, COLLECTION, out, "--set", "edges"), "setting edges: expected NAME=VALUE with one of the names"),
        ((there, COLLECTION, out), "20 folds of 4 graphs"),
        ((there, COLLECTION, out, "--folds", 2, "--split", "vaild"), "unknown split 'vaild'"),
        ((there, "tile:xla", out, "--folds", 2, "--split", "valid"), "holds no prepared graph of tile:xla, valid"),
    ):
        code, _, err = call(capfd, "tpugraphs", "train", *arguments)
        assert code == 2
        assert sentence in err.replace("\n", " ")
        assert "Traceback" not in err


def test_each_model_is_an_option():
    assert [option.value for option in ModelOption] == list(MODELS)
