"""The commands for XLA graphs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.command import call
from tests.tpugraphs.published import layout_fields, tile_fields, write
from tests.tpugraphs.test_encode import small_module


def test_prepare_reports_what_it_saves_and_resumes(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    root, out = tmp_path / "data", tmp_path / "prepared"
    write(root / "npz/layout/xla/random/train/a.npz", layout_fields())
    write(root / "npz/layout/xla/random/valid/b.npz", layout_fields(), node_feat=None)
    write(root / "npz/tile/xla/train/k.npz", tile_fields())
    found = []
    for _ in range(2):
        code, stdout, err = call(capfd, "tpugraphs", "prepare", root, out, "--json", "-")
        assert code == 0, err
        assert "b.npz: the field node_feat is missing" in err
        found.append(json.loads(stdout))
    assert found[0] == found[1]
    assert len(found[0]["left_out"]) == 1
    layouts = found[0]["collections"]["layout:xla:random"]
    assert (layouts["graphs"], layouts["nodes"], layouts["configs"]) == (1, 12, 20)
    assert layouts["kept_bytes"] * 6 == layouts["bytes"]
    assert (out / "tile-xla" / "train" / "k.npz").is_file()


def test_encode(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    (tmp_path / "m.pb").write_bytes(small_module().SerializeToString())
    arguments = ("tpugraphs", "encode", tmp_path / "m.pb", tmp_path / "out", "--source", "hlo", "--json", "-")
    code, stdout, err = call(capfd, *arguments)
    assert code == 0, err
    (written,) = json.loads(stdout)["written"]
    assert written == {"file": str(tmp_path / "out" / "small.npz"), "nodes": 5, "configs": 0}


def test_from_published_files_to_a_ranking(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    def run(*arguments: object) -> dict[str, Any]:
        code, out, err = call(capfd, "tpugraphs", *arguments, "--json", "-")
        assert code == 0, err
        found: dict[str, Any] = json.loads(out)
        return found

    root, prepared = tmp_path / "data", tmp_path / "prepared"
    for seed in range(3):
        write(root / f"npz/layout/xla/random/train/g{seed}.npz", layout_fields(seed=seed))
    write(root / "npz/layout/xla/random/valid/v.npz", layout_fields(seed=3))
    write(root / "npz/layout/xla/random/test/t.npz", layout_fields(configs=4, seed=4), config_runtime=None)
    run("prepare", root, prepared)
    models = tmp_path / "models"
    options = ("--epochs", 2, "--set", "channels=16", "--folds", 4, "--trained", 2, "--kept", 1)
    trained = run("train", prepared, "layout:xla:random", models, *options)
    assert (trained["graphs"], len(trained["validation_errors"]["0"])) == (4, 1)

    seeds = run("train", prepared, "layout:xla:random", tmp_path / "seeds", *options, "--seed", 3, "--seed", 4)
    assert set(seeds["validation_errors"]) == {"3", "4"}
    assert (tmp_path / "seeds" / "seed-4" / "kept.json").is_file()

    chosen = ("--model", f"layout:xla:random={models}", "--permutations", 2)
    found = run("evaluate", root, *chosen)
    for metric, value in found["graphs"]["layout:xla:random"]["v"].items():
        assert found["collections"]["layout:xla:random"][metric] == value
    assert set(found["graphs"]["layout:xla:random"]) == {"v"}
    assert found["score"] == found["collections"]["layout:xla:random"]["kendall_tau"]
    assert {"slowdown1", "slowdown10", "slowdown100"} <= set(found["collections"]["layout:xla:random"])

    assert run("rank", root, tmp_path / "out.csv", *chosen)["graphs"] == 1
    header, line = (tmp_path / "out.csv").read_text().splitlines()
    assert header == "ID,TopConfigs"
    name, _, ranked = line.partition(",")
    assert name == "layout:xla:random:t"
    assert sorted(ranked.split(";")) == ["0", "1", "2", "3"]

    # Of the training graphs one validated, at most.
    own = run("evaluate", root, *chosen, "--split", "train")["trained_on"]["layout:xla:random"]
    assert set(own) < {"g0", "g1", "g2"} or found["trained_on"]["layout:xla:random"] == []
    assert len(own) + len(found["trained_on"]["layout:xla:random"]) == 3
    unseen = tmp_path / "unseen"
    run("train", prepared, "layout:xla:random", unseen, *options, "--folds", 3, "--split", "train")
    kept = f"layout:xla:random={unseen}"
    assert run("evaluate", root, "--model", kept)["trained_on"] == {"layout:xla:random": []}

    code, _, err = call(capfd, "tpugraphs", "train", prepared, "layout:xla:random", models, *options, "--model", "gru")
    assert code == 2
    assert "fold-0.safetensors was trained on or with another model" in err.replace("\n", " ")

    code, _, err = call(
        capfd, "tpugraphs", "rank", root, tmp_path / "default.csv", "--model", f"layout:xla:default={models}"
    )
    assert code == 2
    assert f"{models} was trained on layout:xla:random, and ranks layout:xla:default" in err.replace("\n", " ")

    code, _, err = call(capfd, "tpugraphs", "evaluate", root, *chosen, "--split", "test")
    assert code == 2
    assert "no graph of layout:xla:random" in err.replace("\n", " ")


def test_mistakes_get_one_sentence(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    (tmp_path / "bad.pb").write_bytes(b"\xff")
    empty, there = tmp_path / "empty", tmp_path / "there"
    (empty / "npz/tile/xla/train").mkdir(parents=True)
    write(tmp_path / "one/npz/tile/xla/train/k.npz", tile_fields())
    assert call(capfd, "tpugraphs", "prepare", tmp_path / "one", there)[0] == 0
    for arguments, sentence in (
        (("prepare", tmp_path, tmp_path / "out"), "holds no collection"),
        (("prepare", tmp_path, tmp_path / "out", "--collection", "tile"), "unknown collection 'tile'"),
        (("encode", tmp_path / "bad.pb", tmp_path / "out", "--source", "tile"), "bad.pb: not a serialised TuningData"),
        (("prepare", empty, tmp_path / "out"), "holds no npz file of tile:xla"),
        (("train", tmp_path, "tile:xla", tmp_path / "out"), "holds no prepared graph of tile:xla, train or valid"),
        (("train", tmp_path, "tile", tmp_path / "out"), "unknown collection 'tile'"),
        (("train", there, "tile:xla", tmp_path / "out", "--set", "chanels=3"), "--set chanels=3: expected NAME=VALUE"),
        (("train", there, "tile:xla", tmp_path / "out", "--set", "seed=3"), "--set seed=3: expected NAME=VALUE"),
        (("train", there, "tile:xla", tmp_path / "out"), "20 folds of 1 graphs"),
        (
            ("train", there, "tile:xla", tmp_path / "out", "--folds", 2, "--split", "valid"),
            "holds no prepared graph of tile:xla, valid",
        ),
        (("rank", tmp_path, tmp_path, "--model", "tile:xla=x"), "is a folder; expected the file to write"),
        (("rank", tmp_path, tmp_path / "o.csv", "--model", "tile:xla"), "expected COLLECTION=PATH"),
        (("rank", tmp_path, tmp_path / "o.csv", "--model", f"tile:xla={tmp_path}"), "no finished training is there"),
        (("encode", tmp_path / "none.pb", tmp_path / "out", "--source", "tile"), "none.pb"),
    ):
        code, _, err = call(capfd, "tpugraphs", *arguments)
        assert code == 2
        assert sentence in err.replace("\n", " ")
        assert "Traceback" not in err
