"""Extraction through the protocol: resuming, duplicates, details, networks found later."""

from __future__ import annotations

import json
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

from tvm_gnn_cost.datasets.store import GraphStore
from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.progress import Advanced, Event
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.tuning.collect import collect
from tvm_gnn_cost.tuning.extract import extract

pytestmark = pytest.mark.needs("tvm")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six programs of one task."""
    out = tmp_path_factory.mktemp("extract") / "data"
    collect(["dense/0"], out, random=6, guided=0, turns=1, patience_s=0, hardware="here")
    return out


def record_file(folder: Path) -> Path:
    (file,) = [*(folder / "measure_records" / "here").glob("*.json")] or [folder / "database_tuning_record.json"]
    return file


def test_an_interrupted_extraction_goes_on(folder: Path, tmp_path: Path) -> None:
    half = Path(shutil.copytree(folder, tmp_path / "half"))
    lines = record_file(half).read_text().splitlines(keepends=True)
    record_file(half).write_text("".join(lines[:2]))
    assert extract(half, tmp_path / "store", features=False, jobs=1).added == 2
    events: list[Event] = []
    done = extract(folder, tmp_path / "store", features=False, programs_at_once=3, jobs=1, progress=events.append)
    assert (done.added, done.known, done.problems) == (4, 2, ())
    assert events == [Advanced(5, 6), Advanced(6, 6)]
    again = extract(folder, tmp_path / "store", features=False, jobs=1)
    assert (again.added, again.known) == (0, 6)
    extract(folder, tmp_path / "whole", features=False, jobs=1)
    one, two = (GraphStore(tmp_path / name).load() for name in ("store", "whole"))
    np.testing.assert_array_equal(one.graphs.x, two.graphs.x)
    np.testing.assert_array_equal(one.latency, two.latency)


def test_the_same_record_twice_is_one_program(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    file = record_file(copy)
    text = file.read_text()
    file.write_text(text + text)
    done = extract(copy, tmp_path / "store", features=False, jobs=1)
    assert (done.added, done.known) == (6, 6)


def test_a_line_that_is_no_record_is_reported_and_left_out(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    file = record_file(copy)
    lines = file.read_text().splitlines(keepends=True)
    # At the end: MetaSchedule's records belong to the lines of another file by their number.
    file.write_text("".join(lines) + "no record\n")
    done = extract(copy, tmp_path / "store", features=False, jobs=1)
    assert done.added == 6
    (problem,) = done.problems
    assert (problem.file, problem.line) == (file, 7)
    assert "not JSON" in problem.reason


def test_statements_are_a_smaller_graph_in_a_store_of_their_own(folder: Path, tmp_path: Path) -> None:
    extract(folder, tmp_path / "tree", detail="tree", features=False, jobs=1)
    extract(folder, tmp_path / "statements", features=False, jobs=1)
    trees, statements = (GraphStore(tmp_path / name).load().graphs for name in ("tree", "statements"))
    assert (statements.node_counts < trees.node_counts).all()
    with pytest.raises(InputError, match="holds graphs of detail 'tree', not 'statements'; extract into another"):
        extract(folder, tmp_path / "tree", features=False, jobs=1)


def test_features_are_kept_where_they_are_wanted(folder: Path, tmp_path: Path) -> None:
    extract(folder, tmp_path / "store", jobs=1)
    features = GraphStore(tmp_path / "store").load(with_features=True).per_store_features
    assert features is not None
    assert all(features[i].shape[1] == 164 and len(features[i]) for i in range(6))


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    with pytest.raises(FileNotFoundError, match=r"is not a MetaSchedule database|is not in TenSet's layout"):
        extract(tmp_path / "data", tmp_path / "store")


@pytest.mark.needs("s_tir")
def test_hardware_is_for_tensets_layout_alone(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="hardware is for a folder in TenSet's layout"):
        extract(folder, tmp_path / "store", hardware="cpu")


@pytest.mark.needs("s_tir")
def test_a_network_found_later_reaches_the_stored_programs(folder: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(folder, tmp_path / "copy"))
    entry = json.loads((copy / "tasks.jsonl").read_text().splitlines()[0])
    for weights in ({"first": 1}, {"first": 1, "second": 3}):
        (copy / "tasks.jsonl").write_text(json.dumps(entry | {"weights": weights}) + "\n")
        extract(copy, tmp_path / "store", features=False)
        (task,) = GraphStore(tmp_path / "store").load().tasks
        assert dict(task.weights) == weights
    shards = len(GraphStore(tmp_path / "store").shards())
    assert extract(copy, tmp_path / "store", features=False).known == 6
    assert len(GraphStore(tmp_path / "store").shards()) == shards


def test_the_scheduler_is_told_by_the_folders_layout(folder: Path, tmp_path: Path) -> None:
    extract(folder, tmp_path / "store", features=False, jobs=1)
    (task,) = GraphStore(tmp_path / "store").tasks()
    assert task.scheduler == scheduler().name


@pytest.mark.slow_with("auto_scheduler")
def test_a_cluster_extracts_the_same_and_a_worker_may_die(folder: Path, tmp_path: Path) -> None:
    from distributed import LocalCluster

    killed: list[int] = []
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster:

        def follow(_: Event) -> None:
            if not killed:
                killed.append(cluster.workers[0].process.pid)
                os.kill(killed[0], signal.SIGKILL)

        there = {"dask": cluster.scheduler_address, "programs_at_once": 1, "progress": follow}
        done = extract(folder, tmp_path / "there", **there)  # type: ignore[arg-type]
    assert (done.added, done.known, done.problems) == (6, 0, ())
    assert killed
    extract(folder, tmp_path / "here", jobs=1)
    one, two = (GraphStore(tmp_path / name).load(with_features=True) for name in ("there", "here"))
    np.testing.assert_array_equal(one.graphs.x, two.graphs.x)
    np.testing.assert_array_equal(one.graphs.edge_index, two.graphs.edge_index)
    np.testing.assert_array_equal(one.latency, two.latency)


def test_a_cluster_that_is_not_there_is_named(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvm_gnn_cost.schedulers.isolation._CONNECT_S", 1)
    for address in ("tcp://127.0.0.1:9", "nonsense"):
        with pytest.raises(WorkError, match=f"no Dask scheduler with a worker answers at {address}"):
            extract(folder, tmp_path / "store", dask=address)
    assert not (tmp_path / "store").exists()
