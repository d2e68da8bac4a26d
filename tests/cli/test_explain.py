from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command import assert_mistake, call
from tvm_gnn_cost.tuning.collect import collect

pytestmark = pytest.mark.needs("tvm")


def test_programs_are_printed_and_written(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    collect(("softmax/0",), tmp_path / "data", random=2, guided=0, turns=1, patience_s=0)
    code, out, err = call(capfd, "explain", tmp_path / "data", "--html", tmp_path / "why.html", "--json", "-")
    assert code == 0, err
    found = json.loads(out)
    assert [one["rank"] for one in found["programs"]] == [1, 2]
    assert "for " in err
    assert found["task"] in err
    assert (tmp_path / "why.html").read_text().startswith("<!DOCTYPE html>")
    code, out, _ = call(capfd, "explain", tmp_path / "data", "--rank", "2", "--json", "-")
    assert [one["rank"] for one in json.loads(out)["programs"]] == [2]


def test_mistakes(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert_mistake(call(capfd, "explain", tmp_path / "nothing"), "nothing", 2)
    assert_mistake(call(capfd, "explain", tmp_path, "--cost-model", "nosuch"), "nosuch", 2)
