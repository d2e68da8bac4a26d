from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command import call
from tests.tpugraphs.published import layout_fields, tile_fields, write


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
    assert set(found[0]) == {"collections", "left_out"}
    assert len(found[0]["left_out"]) == 1
    layouts = found[0]["collections"]["layout:xla:random"]
    assert (layouts["graphs"], layouts["nodes"], layouts["configs"]) == (1, 12, 20)
    assert layouts["kept_bytes"] * 6 == layouts["bytes"]
    assert (out / "tile-xla" / "train" / "k.npz").is_file()
    code, _, err = call(capfd, "tpugraphs", "prepare", root, out, "--no-prune")
    assert (code, "it was pruned when it was prepared" in err.replace("\n", " ")) == (2, True)


def test_mistakes_get_one_sentence(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    empty = tmp_path / "empty"
    (empty / "npz/tile/xla/train").mkdir(parents=True)
    for arguments, sentence in (
        ((tmp_path, tmp_path / "out"), "holds no collection"),
        ((tmp_path, tmp_path / "out", "--collection", "tile"), "unknown collection 'tile'"),
        ((empty, tmp_path / "out"), "holds no npz file of tile:xla"),
    ):
        code, _, err = call(capfd, "tpugraphs", "prepare", *arguments)
        assert code == 2
        assert sentence in err.replace("\n", " ")
        assert "Traceback" not in err
