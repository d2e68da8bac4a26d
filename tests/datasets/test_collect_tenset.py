"""A small collection of Ansor's programs, built and measured on this machine."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import auto_scheduler

from tvm_gnn_cost.datasets import collect_tenset as collecting
from tvm_gnn_cost.datasets.collect_tenset import Plan, collect_tenset
from tvm_gnn_cost.datasets.extract_tenset import extract_tenset
from tvm_gnn_cost.datasets.store import GraphStore
from tvm_gnn_cost.datasets.tenset import parse_record, read_tenset
from tvm_gnn_cost.networks.relay import local_target
from tvm_gnn_cost.networks.te_operators import KINDS, te_operator

PLAN = Plan(("softmax/0", "pooling/1"), random=3, guided=2, min_repeat_ms=1)


class Log:
    def __init__(self) -> None:
        self.new = self.valid = self.failed = 0
        self.done: list[str] = []
        self.notes: list[str] = []

    def found(self, _workload: str, new_tasks: int) -> None:
        self.new += new_tasks

    def measured(self, valid: int, failed: int) -> None:
        self.valid += valid
        self.failed += failed

    def finished(self, task: str) -> None:
        self.done.append(task)

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.mark.parametrize("kind", KINDS)
def test_operators_are_tasks_of_different_shapes(kind: str):
    keys = {auto_scheduler.ComputeDAG(te_operator(kind, number)).workload_key() for number in range(4)}
    assert len(keys) > 1
    again = auto_scheduler.ComputeDAG(te_operator(kind, 0)).workload_key()
    assert again == auto_scheduler.ComputeDAG(te_operator(kind, 0)).workload_key()
    assert again in keys


def test_a_collection_is_resumed_and_read(tmp_path: Path):
    folder, log = tmp_path / "data", Log()
    collect_tenset(PLAN, folder, "here", log)
    assert (log.new, log.valid + log.failed, log.done) == (2, 10, ["softmax/0", "pooling/1"])
    data = read_tenset(folder)
    assert len(data.tasks) == len(data.files) == 2
    lines = [line.text for line in data.lines()]
    states = [json.dumps(json.loads(text)["i"][1]) for text in lines]
    assert len(set(states)) == len(states) == 10
    # A sampled program of a small task can be slow, on a busy machine: the runner ends it after 20 seconds.
    assert all(0 < min(parse_record(line).run_secs) < 20 for line in data.lines() if not parse_record(line).failure)

    # Killed in the middle of a line: that program alone is measured again. A line that is no record is named.
    with data.files[0].open("r+") as file:
        file.truncate(data.files[0].stat().st_size - 20)
    broken = data.files[1].read_text()
    data.files[1].write_text("no record\n" + broken)
    again = Log()
    collect_tenset(PLAN, folder, "here", again)
    assert again.valid + again.failed == 1
    (note,) = again.notes
    assert note.startswith(f"left out: {data.files[1]}:1: not JSON")
    data.files[1].write_text(broken)
    assert sum(text in lines for text in (line.text for line in read_tenset(folder).lines())) == 9

    store = GraphStore(tmp_path / "store")
    assert extract_tenset(folder, store, detail="statements", jobs=1).added == 10
    programs = store.load(with_features=True)
    assert np.isfinite(programs.latency).sum() == 10 - log.failed
    assert programs.graphs.errors == {}

    collect_tenset(replace(PLAN, workloads=("softmax/0",)), folder, "here", Log())
    card = folder / "here.card.json"
    assert json.loads(card.read_text())["settings"]["workloads"] == list(PLAN.workloads)
    card.write_text(card.read_text().replace('"target": "llvm', '"target": "cuda'))
    with pytest.raises(ValueError, match=r"choose another --hardware"):
        collect_tenset(PLAN, folder, "here", Log())
    for text in ("no JSON", "[]", '{"machine": {}}'):
        card.write_text(text)
        with pytest.raises(ValueError, match=r"here\.card\.json is no card of a collection"):
            collect_tenset(PLAN, folder, "here", Log())
    card.unlink()
    with pytest.raises(ValueError, match=r"here holds records and here\.card\.json does not say .*another --hardware"):
        collect_tenset(PLAN, folder, "here", Log())


@pytest.mark.parametrize("name", ["nosuch", "nosuch/1", "dense/x"])
def test_an_unknown_workload_is_named(name: str, tmp_path: Path):
    with pytest.raises(ValueError, match=r"nosuch|dense/x"):
        collect_tenset(Plan(("softmax/0", name)), tmp_path / "data", "here", Log())
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize("hardware", ["../../elsewhere", "my cpu", "a/b", ".", "..", ""])
def test_a_name_of_the_hardware_that_is_no_folders(hardware: str, tmp_path: Path):
    with pytest.raises(ValueError, match=r"--hardware '.*' cannot name a folder"):
        collect_tenset(PLAN, tmp_path / "data", hardware, Log())
    assert not list(tmp_path.iterdir())


def test_a_task_with_few_random_programs_gets_its_guided_ones_after_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    sample = collecting._sample

    def few(task: Any, count: int, seed: int, guide: Any, known: set[str]) -> list[Any]:
        return sample(task, count, seed, guide, known) if guide or not known else []

    monkeypatch.setattr(collecting, "_sample", few)
    plan, folder = Plan(("softmax/0",), random=2, guided=0, min_repeat_ms=1), tmp_path / "data"
    collect_tenset(plan, folder, "here", Log())
    log = Log()
    collect_tenset(replace(plan, random=3, guided=1), folder, "here", log)
    assert log.valid + log.failed == 2


def test_the_target_has_a_number_of_cores_on_any_machine(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("psutil.cpu_count", lambda **_: None)
    assert int(local_target().attrs["num-cores"]) == os.cpu_count()
