"""A small collection with the installed TVM's scheduler, built and measured on this machine."""

from __future__ import annotations

import json
import lzma
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvm_gnn_cost.datasets.store import GraphStore
from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.progress import Event, Note, ProgramsMeasured, TaskFinished, TasksFound
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.tuning.collect import CollectResult, collect
from tvm_gnn_cost.tuning.extract import extract

pytestmark = pytest.mark.needs("tvm")

WORKLOADS = ("dense/0", "batch-matmul/1")


def run(
    folder: Path, workloads: Sequence[str] = WORKLOADS, random: int = 3, guided: int = 2, **changes: Any
) -> tuple[CollectResult, list[Event]]:
    events: list[Event] = []
    settings = {"random": random, "guided": guided, "turns": 1, "patience_s": 0, "hardware": "here", **changes}
    return collect(workloads, folder, progress=events.append, **settings), events


def of_type(events: list[Event], kind: type) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def record_files(folder: Path) -> list[Path]:
    records = folder / "measure_records" / "here"
    return sorted(records.iterdir()) if records.exists() else [folder / "database_tuning_record.json"]


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CollectResult, list[Event]]:
    folder = tmp_path_factory.mktemp("collect") / "data"
    return folder, *run(folder)


def test_every_task_gets_its_random_and_guided_programs(collected: tuple[Path, CollectResult, list[Event]]) -> None:
    folder, done, events = collected
    found = of_type(events, TasksFound)
    assert [event.workload for event in found] == list(WORKLOADS)
    assert done.tasks == sum(event.new for event in found) == len(of_type(events, TaskFinished))
    measured = of_type(events, ProgramsMeasured)
    assert sum(event.valid for event in measured) == done.measured_now
    assert sum(event.failed for event in measured) == done.failed_now
    assert done.programs == done.measured_now + done.failed_now == 5 * done.tasks
    lines = [line for file in record_files(folder) for line in file.read_text().splitlines()]
    assert len(lines) == len(set(lines)) == done.programs


def test_a_trained_model_can_guide(tmp_path: Path) -> None:
    done, _ = run(tmp_path / "data", WORKLOADS[:1], 2, 2, guide="gnn")
    assert done.programs == 4 * done.tasks
    (card,) = (tmp_path / "data").glob("*card.json")
    assert json.loads(card.read_text())["runs"][0]["guide"] == "gnn"


def test_a_guide_that_is_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"mine\.safetensors: there is no such checkpoint"):
        run(tmp_path / "data", guide=str(tmp_path / "mine.safetensors"))
    assert not (tmp_path / "data").exists()


def test_what_is_there_is_not_measured_again(collected: tuple[Path, CollectResult, list[Event]]) -> None:
    folder, first, _ = collected
    again, events = run(folder)
    assert (again.tasks, again.programs, again.measured_now + again.failed_now) == (first.tasks, first.programs, 0)
    assert len(of_type(events, TaskFinished)) == first.tasks


def test_a_compressed_collection_goes_on(collected: tuple[Path, CollectResult, list[Event]], tmp_path: Path) -> None:
    folder, first, _ = collected
    packed = tmp_path / "packed"
    shutil.copytree(folder, packed)
    for file in [path for path in packed.rglob("*") if path.is_file() and "card" not in path.name]:
        file.with_name(f"{file.name}.xz").write_bytes(lzma.compress(file.read_bytes()))
        file.unlink()
    again, _ = run(packed)
    assert (again.tasks, again.programs, again.measured_now + again.failed_now) == (first.tasks, first.programs, 0)
    assert not list(packed.rglob("*.xz"))


@pytest.mark.slow
def test_other_machines_measure_what_is_built_here(tmp_path: Path) -> None:
    from tests.schedulers.rack import KEY, Rack

    # Built as for another kind of machine: linked where it runs.
    text = {
        "meta-schedule": '{"kind": "llvm", "mtriple": "x86_64-linux-gnu", "num-cores": 3}',
        "auto-scheduler": "llvm -mtriple=x86_64-linux-gnu -num-cores=3",
    }[scheduler().name]
    with Rack(2) as rack:
        there = {"tracker": str(rack.tracker), "key": KEY, "target": text}
        done, _ = run(tmp_path / "data", random=2, guided=0, **there)
        assert (done.measured_now, done.failed_now) == (2 * done.tasks, 0)
        (card,) = (tmp_path / "data").glob("*card.json")
        assert f"machines '{KEY}' of an RPC tracker" in card.read_text()
        assert "num-cores" in record_files(tmp_path / "data")[0].read_text()
        with pytest.raises(InputError, match="such measurements are not comparable"):
            run(tmp_path / "data", random=3, guided=0)
    with pytest.raises(WorkError, match="no RPC tracker answers"):
        run(tmp_path / "data", random=3, guided=0, **there)


@pytest.mark.parametrize("text", ["nonsense", "llvm -num-cores=two", '{"kind": "llvm"}', "{"])
def test_a_target_that_tvm_does_not_know(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=r"^target "):
        run(tmp_path / "data", tracker="127.0.0.1:9", key="board", target=text)
    assert not (tmp_path / "data").exists()


@pytest.mark.slow_with("auto_scheduler")
def test_a_collection_goes_on_after_a_kill_in_the_middle_of_a_line(tmp_path: Path) -> None:
    first, _ = run(tmp_path / "data", WORKLOADS[:1], 2, 0)
    file = record_files(tmp_path / "data")[0]
    whole = file.read_text().splitlines()
    with file.open("r+") as opened:
        opened.truncate(file.stat().st_size - 20)
    again, events = run(tmp_path / "data", WORKLOADS[:1], 2, 0)
    assert again.measured_now + again.failed_now == 1
    assert file.read_text().splitlines()[:-1] == whole[:-1]
    assert not of_type(events, Note)
    more, _ = run(tmp_path / "data", WORKLOADS[:1], 3, 0)
    assert (more.programs, more.measured_now + more.failed_now) == (first.programs + 1, 1)


def test_a_collection_becomes_a_store(collected: tuple[Path, CollectResult, list[Event]], tmp_path: Path) -> None:
    folder, done, _ = collected
    assert extract(folder, tmp_path / "store", jobs=1).added == done.programs
    programs = GraphStore(tmp_path / "store").load(with_features=True)
    assert np.isfinite(programs.latency).sum() == done.programs - done.failed
    assert programs.graphs.errors == {}
    assert {task.scheduler for task in programs.tasks} <= {scheduler().name, "meta-schedule"}


@pytest.mark.parametrize("name", ["nosuch", "nosuch/1", "dense/x"])
def test_an_unknown_workload_is_named_and_nothing_is_written(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nosuch|dense/x"):
        run(tmp_path / "data", ("softmax/0", name))
    assert not (tmp_path / "data").exists()


def test_a_network_that_cannot_be_imported_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "of_a_team.py").write_text("def broken():\n    raise ValueError('no weights')\n")
    done, events = run(tmp_path / "data", ("of_a_team:broken", "softmax/0"), 2, 0)
    assert (done.tasks, done.programs) == (1, 2)
    (reason,) = done.left_out
    assert "of_a_team:broken raises ValueError (no weights)" in reason
    assert [event.text for event in of_type(events, Note)] == [f"left out: {reason}"]
    with pytest.raises(InputError, match="no weights"):
        run(tmp_path / "data", ("of_a_team:broken",), 2, 0)


def test_the_error_of_the_only_network_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object) -> None:
        raise WorkError("TVM cannot lower it")

    monkeypatch.setattr(scheduler(), "tasks_of_workload", failing)
    with pytest.raises(WorkError, match="TVM cannot lower it"):
        run(tmp_path / "data", ("softmax/0",), 2, 0)


def test_tvms_own_design_space(tmp_path: Path) -> None:
    if scheduler().name == "auto-scheduler":
        with pytest.raises(InputError, match="a single design space"):
            run(tmp_path / "data", space="tvm")
        assert not (tmp_path / "data").exists()
        return
    done, _ = run(tmp_path / "data", ("conv2d/0",), 4, 1, space="tvm")
    assert (done.tasks, done.measured_now, done.failed_now) == (1, 5, 0)
    (records,) = record_files(tmp_path / "data")
    # This package's design space has no such annotation.
    assert "meta_schedule.tiling_structure" in records.read_text()
    assert extract(tmp_path / "data", tmp_path / "store", jobs=1).added == 5
    with pytest.raises(InputError, match="the design space is package or tvm, not other"):
        run(tmp_path / "data", space="other")
    with pytest.raises(InputError, match="measured with the design space tvm, but now it is package"):
        run(tmp_path / "data", ("conv2d/0",), 5, 1)


def test_no_workload_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no workload to collect"):
        run(tmp_path / "data", ())


def test_another_machines_collection_is_refused(tmp_path: Path) -> None:
    run(tmp_path / "data", WORKLOADS[:1], 1, 0)
    (card,) = (tmp_path / "data").glob("*card.json")
    text = card.read_text()
    plain = min(path for path in (tmp_path / "data").rglob("*") if path.is_file() and path != card)
    packed = plain.with_name(f"{plain.name}.xz")
    packed.write_bytes(lzma.compress(plain.read_bytes()))
    plain.unlink()
    for before, after in (('"llvm', '"cuda'),):
        card.write_text(text.replace(before, after))
        with pytest.raises(InputError, match=rf"{card.name}: measured with the target .*choose another"):
            run(tmp_path / "data", WORKLOADS[:1], 1, 0)
    assert packed.exists()
    for damaged in ("no JSON", "[]", '{"machine": {}}'):
        card.write_text(damaged)
        with pytest.raises(InputError, match=f"{card.name} is not a card of measurements"):
            run(tmp_path / "data", WORKLOADS[:1], 1, 0)
