from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command import call
from tests.tpugraphs.modules import small_module, tile_run
from tvm_gnn_cost.tpugraphs.format.protos import TuningData


def test_encode(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    (tmp_path / "m.pb").write_bytes(small_module().SerializeToString())
    arguments = ("tpugraphs", "encode", tmp_path / "m.pb", tmp_path / "out", "--source", "hlo", "--json", "-")
    code, stdout, err = call(capfd, *arguments)
    assert code == 0, err
    assert f"{tmp_path / 'out' / 'small.npz'}: 5 nodes, 0 configurations" in err
    found = json.loads(stdout)
    assert found == {
        "written": [{"file": str(tmp_path / "out" / "small.npz"), "nodes": 5, "configs": 0}],
        "left_out": [],
    }


def test_what_is_left_out_is_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    path = tmp_path / "ops.pb"
    path.write_bytes(TuningData(modules=[{"module": small_module(), "runs": [tile_run(30)]}]).SerializeToString())
    code, _, err = call(capfd, "tpugraphs", "encode", path, tmp_path / "out", "--source", "tile")
    assert code == 0, err
    assert "left out:" in err
    assert "modules[0] (small): it does not have at least two runs" in err


def test_mistakes_get_one_sentence(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    (tmp_path / "bad.pb").write_bytes(b"\xff")
    for file, sentence in (("bad.pb", "bad.pb: not a serialised TuningData"), ("none.pb", "none.pb")):
        code, _, err = call(capfd, "tpugraphs", "encode", tmp_path / file, tmp_path / "out", "--source", "tile")
        assert code == 2
        assert sentence in err.replace("\n", " ")
        assert "Traceback" not in err
