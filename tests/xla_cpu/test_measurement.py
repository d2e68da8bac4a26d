"""Layouts that are really compiled and run; a network in its own process each."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.measuring.machine import describe_machine
from tvm_gnn_cost.progress import Advanced, Event, Stage, Step
from tvm_gnn_cost.tpugraphs.format.npz import read_graph
from tvm_gnn_cost.xla_cpu import layout_timing
from tvm_gnn_cost.xla_cpu.measurement import measure
from tvm_gnn_cost.xla_cpu.settings import MeasureSettings

SHORT = MeasureSettings(configs=4, rounds=4, seconds=0.002, threshold=-1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rounds": 1}, "rounds is 1; expected 2 or more"),
        ({"seconds": -1.0}, "seconds is -1.0; expected 0 or more"),
    ],
)
def test_impossible_settings_are_named(changes: dict[str, Any], message: str):
    with pytest.raises(InputError, match=message):
        MeasureSettings(**changes)


def test_it_resumes_and_writes_what_training_reads(tmp_path: Path):
    first = measure(tmp_path, ["perceptron-a"], SHORT)
    path = tmp_path / "npz/layout/xla/random/train/perceptron-a.npz"
    graph = read_graph(path)
    assert graph.runtime is not None
    assert (graph.configs_shape, graph.runtime.shape) == ((4, 5, 18), (4,))
    # From 10 microseconds to a second.
    assert ((graph.runtime > 1e4) & (graph.runtime < 1e9)).all()
    written = path.stat().st_mtime_ns
    events: list[Event] = []
    card = measure(tmp_path, ["perceptron-a", "elman-a"], SHORT, progress=events.append)
    assert path.stat().st_mtime_ns == written
    assert list(card) == ["what", "date", "machine", "versions", "settings", "graphs"]
    assert list(card["graphs"]) == ["perceptron-a", "elman-a"]
    assert card["graphs"]["perceptron-a"] == first["graphs"]["perceptron-a"]
    assert card == json.loads((tmp_path / "card.json").read_text())
    assert card["graphs"]["perceptron-a"]["slowest_ms"] == pytest.approx(graph.runtime.max() / 1e6, abs=1e-5)
    assert (tmp_path / "npz/layout/xla/random/train/elman-a.npz").is_file()
    # What the other process sends are events.
    assert [event for event in events if not isinstance(event, Step)] == [
        Advanced(0, 2),
        Advanced(1, 2),
        Stage("elman-a: compiling 4 layouts"),
        Stage("elman-a: measuring 4 rounds"),
        Advanced(2, 2),
    ]
    assert Step("elman-a: measuring, round 4 of 4") in events


def test_a_process_that_dies_is_named_and_the_rest_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(layout_timing, "run_process", _die)
    card = measure(tmp_path, ["vgg-a", "gru-a"], SHORT)
    assert card["graphs"] == {
        "vgg-a": {"family": "convolutional", "split": "train", "dropped": "its process ended with exit code 3"},
        "gru-a": {"family": "recurrent", "split": "train", "dropped": "its process ended with exit code 3"},
    }


def _die(*_arguments: object) -> None:
    os._exit(3)


def _card(**changes: Any) -> str:
    return json.dumps({"settings": asdict(SHORT), "machine": {"processor": "x"}, "graphs": {}} | changes)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "card.json is not a card of measurements"),
        ("[]", "card.json is not a card of measurements"),
        (_card(graphs=[]), "card.json is not a card of measurements"),
        (_card(settings={}), "card.json: measured with the settings {}, but now it is {'configs': 4,"),
        (_card(), "card.json: measured with the processor x, but now it is"),
        (_card(machine={}), "card.json: measured with the processor None, but now it is"),
    ],
)
def test_what_was_measured_otherwise_stays_apart(content: str, message: str, tmp_path: Path):
    (tmp_path / "card.json").write_text(content)
    with pytest.raises(InputError) as raised:
        measure(tmp_path, ["elman-a"], SHORT)
    assert message in str(raised.value)
    assert "choose another folder" in str(raised.value)
    assert (tmp_path / "card.json").read_text() == content


def test_the_committed_card_is_accepted(tmp_path: Path):
    committed = json.loads((Path(__file__).parents[2] / "benchmarks/data/xla-cpu/card.json").read_text())
    # As if this were the machine that it was measured on.
    (tmp_path / "card.json").write_text(json.dumps(committed | {"machine": describe_machine()}))
    found = measure(tmp_path, list(committed["graphs"]), MeasureSettings(**committed["settings"]))
    assert found["graphs"] == committed["graphs"]


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(InputError, match="unknown network 'alexnet'; one of: vgg-a, "):
        measure(tmp_path, ["alexnet"])
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.delitem(sys.modules, "tvm_gnn_cost.xla_cpu.networks")
    with pytest.raises(WorkError, match=r"measuring layouts needs JAX: pip install 'tvm-gnn-cost\[xla\]'"):
        measure(tmp_path, ["vgg-a"])
    monkeypatch.delattr(os, "sched_setaffinity")
    with pytest.raises(WorkError, match="which needs Linux"):
        measure(tmp_path, ["vgg-a"])
