from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command import call
from tests.tpugraphs.trained import COLLECTION, Example


def evaluate(capfd: pytest.CaptureFixture[str], root: Path, models: Path, *options: object) -> dict[str, Any]:
    arguments = ("evaluate", root, "--model", f"{COLLECTION}={models}", "--permutations", 2, *options)
    code, out, err = call(capfd, "tpugraphs", *arguments, "--json", "-")
    assert code == 0, err
    found: dict[str, Any] = json.loads(out)
    return found


def test_the_metrics_of_each_graph_and_their_mean(example: Example, capfd: pytest.CaptureFixture[str]):
    found = evaluate(capfd, example.root, example.models)
    assert set(found) == {"score", "collections", "graphs", "trained_on", "left_out"}
    for metric, value in found["graphs"][COLLECTION]["v"].items():
        assert found["collections"][COLLECTION][metric] == value
    assert set(found["graphs"][COLLECTION]) == {"v"}
    assert found["score"] == found["collections"][COLLECTION]["kendall_tau"]
    assert {"slowdown1", "slowdown10", "slowdown100"} <= set(found["collections"][COLLECTION])


def test_graphs_that_trained_the_models_are_named(example: Example, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    # Of the four graphs one validated.
    found = evaluate(capfd, example.root, example.models)["trained_on"][COLLECTION]
    own = evaluate(capfd, example.root, example.models, "--split", "train")["trained_on"][COLLECTION]
    assert set(own) < {"g0", "g1", "g2"} or found == []
    assert len(own) + len(found) == 3
    options = ("--epochs", 1, "--set", "channels=16", "--folds", 3, "--trained", 1, "--kept", 1, "--split", "train")
    code, _, err = call(capfd, "tpugraphs", "train", example.prepared, COLLECTION, tmp_path, *options)
    assert code == 0, err
    assert evaluate(capfd, example.root, tmp_path)["trained_on"] == {COLLECTION: []}
    _, _, err = call(
        capfd, "tpugraphs", "evaluate", example.root, "--model", f"{COLLECTION}={tmp_path}", "--split", "train"
    )
    assert "the models were trained on some of these: g" in err


def test_secret_runtimes_can_not_be_evaluated(example: Example, capfd: pytest.CaptureFixture[str]):
    chosen = ("--model", f"{COLLECTION}={example.models}")
    code, _, err = call(capfd, "tpugraphs", "evaluate", example.root, *chosen, "--split", "test")
    assert code == 2
    assert f"no graph of {COLLECTION}" in err.replace("\n", " ")
    assert "t: its runtimes are secret" in err.replace("\n", " ")
