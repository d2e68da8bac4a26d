from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.command import call

OPTIONS = ("--configs", 4, "--rounds", 4, "--seconds", 0.002)


def test_a_graph_of_noise_is_dropped(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    command = ("tpugraphs", "measure", tmp_path, *OPTIONS, "--network", "perceptron-a", "--json", "-")
    code, out, err = call(capfd, *command, "--threshold", 1.1)
    assert code == 0, err
    assert "is below 1.1" in json.loads(out)["graphs"]["perceptron-a"]["dropped"]
    assert "measured in" in err
    assert json.loads(out) == json.loads((tmp_path / "card.json").read_text())
    assert not list(tmp_path.rglob("*.npz"))
    code, _, err = call(capfd, *command)
    assert code == 2
    assert "card.json: measured with the settings" in err.replace("\n", " ")
    assert "choose another folder" in err.replace("\n", " ")


def test_unknown_network(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    code, _, err = call(capfd, "tpugraphs", "measure", tmp_path, "--network", "alexnet")
    assert (code, "unknown network 'alexnet'" in err) == (2, True)
    assert "Traceback" not in err
