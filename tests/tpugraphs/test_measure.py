"""Layouts that are really compiled and run; a network in its own process each."""

from __future__ import annotations

import json
import multiprocessing
from dataclasses import asdict, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.command import call
from tvm_gnn_cost.networks.xla import NETWORKS
from tvm_gnn_cost.tpugraphs.layouts import Operations
from tvm_gnn_cost.tpugraphs.measure import MeasureSettings, _measure, retest_tau
from tvm_gnn_cost.tpugraphs.npz import read_graph

OPTIONS = ("--configs", 4, "--rounds", 4, "--seconds", 0.002)


def test_measure_resumes_and_writes_what_training_reads(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    command = ("tpugraphs", "measure", tmp_path, *OPTIONS, "--threshold", -1, "--network", "perceptron-a")
    code, _, err = call(capfd, *command)
    assert code == 0, err
    path = tmp_path / "npz/layout/xla/random/train/perceptron-a.npz"
    graph = read_graph(path)
    assert graph.runtime is not None
    assert (len(graph.configs), len(graph.config_nodes), graph.runtime.shape) == (4, 5, (4,))
    # From 10 microseconds to a second.
    assert ((graph.runtime > 1e4) & (graph.runtime < 1e9)).all()
    written = path.stat().st_mtime_ns
    code, out, err = call(capfd, *command, "--network", "elman-a", "--json", "-")
    assert code == 0, err
    card = json.loads(out)
    assert path.stat().st_mtime_ns == written
    assert list(card["graphs"]) == ["perceptron-a", "elman-a"]
    assert card == json.loads((tmp_path / "card.json").read_text())
    assert card["graphs"]["perceptron-a"]["slowest_ms"] == pytest.approx(graph.runtime.max() / 1e6, abs=1e-5)
    assert (tmp_path / "npz/layout/xla/random/train/elman-a.npz").is_file()


def test_a_graph_of_noise_is_dropped(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    command = ("tpugraphs", "measure", tmp_path, *OPTIONS, "--network", "perceptron-a", "--json", "-")
    code, out, err = call(capfd, *command, "--threshold", 1.1)
    assert code == 0, err
    assert "is below 1.1" in json.loads(out)["graphs"]["perceptron-a"]["dropped"]
    assert not list(tmp_path.rglob("*.npz"))
    code, _, err = call(capfd, *command)
    assert (code, "use these, or another folder" in err) == (2, True)


def _measure_one_dot(folder: Path, send: Connection) -> None:
    """For a process of its own, as ``measure`` has one for each network."""
    NETWORKS["one-dot"] = replace(NETWORKS["perceptron-a"], function=_one_dot)
    _measure("one-dot", MeasureSettings(configs=80), folder / "one-dot.npz", send)


def _one_dot(ops: Operations) -> Any:
    return ops.dot(ops.parameter(4, 4), ops.parameter(4, 4))


def test_a_network_with_too_few_layouts_is_dropped(tmp_path: Path):
    context = multiprocessing.get_context("spawn")
    receive, send = context.Pipe(duplex=False)
    process = context.Process(target=_measure_one_dot, args=(tmp_path, send))
    process.start()
    send.close()
    kind, content = receive.recv()
    process.join()
    # Three tensors of rank 2, each of which has two layouts or none.
    assert (kind, content) == ("done", {"dropped": "80 different layouts were asked for, and 27 were found"})
    assert process.exitcode == 0
    assert not list(tmp_path.iterdir())


def test_what_was_measured_otherwise_stays_apart(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    command = ("tpugraphs", "measure", tmp_path, "--network", "elman-a")
    for text, sentence in (
        ("{", "card.json: not the card of measured layouts"),
        ("[]", "card.json: not the card of measured layouts"),
        (json.dumps({"settings": {}, "machine": {"processor": "x"}, "graphs": {}}), "measured with the settings {}"),
        (
            json.dumps({"settings": asdict(MeasureSettings()), "machine": {"processor": "x"}, "graphs": {}}),
            "card.json: measured on x, and this is",
        ),
    ):
        (tmp_path / "card.json").write_text(text)
        code, _, err = call(capfd, *command)
        assert (code, sentence in err) == (2, True), err
        assert (tmp_path / "card.json").read_text() == text


def test_unknown_network(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    code, _, err = call(capfd, "tpugraphs", "measure", tmp_path, "--network", "alexnet")
    assert (code, "unknown network 'alexnet'" in err) == (2, True)


def test_retest_tau_compares_the_halves():
    same = np.array([[1.0, 1, 1, 1], [2, 2, 2, 2], [3, 3, 3, 3]])
    assert retest_tau(same) == 1
    turned = same.copy()
    turned[:, 2:] = turned[::-1, 2:]
    assert retest_tau(turned) == -1
