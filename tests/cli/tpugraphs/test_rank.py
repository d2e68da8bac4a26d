from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command import call
from tests.tpugraphs.published import layout_fields, write
from tests.tpugraphs.trained import COLLECTION, Example


def test_all_configurations_are_ranked(example: Example, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    table = tmp_path / "out.csv"
    chosen = ("--model", f"{COLLECTION}={example.models}", "--permutations", 2)
    code, out, err = call(capfd, "tpugraphs", "rank", example.root, table, *chosen, "--json", "-")
    assert code == 0, err
    assert json.loads(out) == {"table": str(table), "graphs": 1, "left_out": []}
    assert f"{table}: 1 graphs ranked, 0 left out" in err
    header, line = table.read_text().splitlines()
    assert header == "ID,TopConfigs"
    name, _, ranked = line.partition(",")
    assert name == f"{COLLECTION}:t"
    assert sorted(ranked.split(";")) == ["0", "1", "2", "3"]


def test_models_of_another_collection_are_named(example: Example, tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    write(tmp_path / "npz/layout/xla/default/test/a.npz", layout_fields())
    chosen = ("--model", f"layout:xla:default={example.models}")
    code, _, err = call(capfd, "tpugraphs", "rank", tmp_path, tmp_path / "out.csv", *chosen)
    assert code == 0, err
    assert f"{example.models} was trained on {COLLECTION}, and ranks layout:xla:default" in err.replace("\n", " ")
    code, _, err = call(capfd, "tpugraphs", "rank", example.root, tmp_path / "default.csv", *chosen)
    assert code == 2
    assert f"{example.models} was trained on {COLLECTION}, and ranks layout:xla:default" in err.replace("\n", " ")
    assert not (tmp_path / "default.csv").exists()


def test_mistakes_get_one_sentence(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    for arguments, sentence in (
        ((tmp_path, tmp_path, "--model", "tile:xla=x"), "is a folder; expected a file"),
        ((tmp_path, tmp_path / "o.csv", "--model", "tile:xla"), "expected COLLECTION=PATH"),
        ((tmp_path, tmp_path / "o.csv", "--model", f"tile:xla={tmp_path}"), "holds no finished training"),
    ):
        code, _, err = call(capfd, "tpugraphs", "rank", *arguments)
        assert code == 2
        assert sentence in err.replace("\n", " ")
        assert "Traceback" not in err
