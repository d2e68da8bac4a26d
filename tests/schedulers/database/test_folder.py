from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from tvm.s_tir import meta_schedule as ms

from tests.schedulers.database.small_database import Database, write_lines
from tvm_gnn_cost.datasets.programs import PER_STORE_COLUMNS
from tvm_gnn_cost.datasets.store import GraphStore
from tvm_gnn_cost.graphs.extraction import extract_graphs
from tvm_gnn_cost.schedulers.database.folder import DatabaseFolder, per_store_features
from tvm_gnn_cost.schedulers.database.records import read_database
from tvm_gnn_cost.schedulers.meta_schedule.preload import import_tensor_intrin
from tvm_gnn_cost.schedulers.meta_schedule.sampling import workload_of
from tvm_gnn_cost.schedulers.scheduler import Task


def opened(folder: Path, threads: int | None = None) -> DatabaseFolder:
    return DatabaseFolder(folder, threads, import_tensor_intrin)


def test_the_store_holds_the_graphs_of_the_measured_modules(database: Database, graph_store: GraphStore) -> None:
    programs = graph_store.load()
    direct = extract_graphs(database.mods, database.target)
    for i in range(len(direct)):
        ours, theirs = programs.graphs.select([i]), direct.select([i])
        assert [ours.type_names[t] for t in ours.node_type] == [theirs.type_names[t] for t in theirs.node_type]
        np.testing.assert_array_equal(ours.x, theirs.x)
        np.testing.assert_array_equal(ours.edge_index, theirs.edge_index)
        np.testing.assert_array_equal(ours.edge_type, theirs.edge_type)
    assert len(programs) == len(direct)


def test_the_store_holds_what_was_measured(database: Database, graph_store: GraphStore) -> None:
    programs = graph_store.load()
    records = read_database(database.folder).records
    assert [programs.tasks[t].hash for t in programs.task] == database.task_hashes
    for i, record in enumerate(records):
        assert programs.failure[i] == record.failure
        if record.failure:
            assert programs.latency[i] == np.inf
        else:
            assert programs.latency[i] == min(record.run_secs)
            assert programs.noise[i] == pytest.approx(np.std(record.run_secs, ddof=1) / np.mean(record.run_secs))
    assert programs.throughput().max() == 1.0


def test_per_store_features_are_those_of_tvm(database: Database, graph_store: GraphStore) -> None:
    features = graph_store.load(with_features=True).per_store_features
    assert features is not None
    read = read_database(database.folder)
    for i, record in enumerate(read.records):
        target = tvm.target.Target(json.loads(record.target))
        context = ms.TuneContext(read.workload(record).mod, target=target)
        candidate = read.replay(record)
        expected = ms.feature_extractor.PerStoreFeature().extract_from(context, [candidate])[0].numpy()
        assert expected.shape[1] == PER_STORE_COLUMNS
        np.testing.assert_array_equal(features[i], expected.astype(np.float32))


def test_each_chunk_is_extracted_by_itself(database: Database) -> None:
    folder = opened(database.folder, threads=1)
    records = list(folder.records())
    assert folder.total == len(records) == len({key for key, _ in records}) == 8
    chunks = list(folder.extract([records[:3], records[3:]], "statements", with_features=False))
    assert [key for chunk in chunks for key in chunk.keys] == [key for key, _ in records]
    assert [list(chunk.run_secs) for chunk in chunks] == [
        [record.run_secs for _, record in some] for some in (records[:3], records[3:])
    ]
    assert list(folder.extract([], "statements", with_features=True)) == []


def test_the_same_record_has_the_same_key_in_another_folder(database: Database, copy: Path) -> None:
    lines = (copy / "database_tuning_record.json").read_text().splitlines(keepends=True)
    (copy / "database_tuning_record.json").write_text("".join(reversed(lines)))
    keys = [key for key, _ in opened(database.folder).records()]
    assert [key for key, _ in opened(copy).records()] == keys[::-1]


def test_networks_are_those_that_have_records(database: Database, copy: Path) -> None:
    weights = {database.task_hashes[0]: {"one": 1, "two": 2}, "0x1": {"three": 1}}
    write_lines(copy / "tasks.jsonl", [{"hash": key, "name": "", "weights": own} for key, own in weights.items()])
    assert opened(copy).networks == {"one", "two"}


def test_a_record_that_cannot_be_replayed_is_reported_and_left_out(copy: Path) -> None:
    file = copy / "database_tuning_record.json"
    records = [json.loads(line) for line in file.read_text().splitlines()]
    records[0][0] = 1
    write_lines(file, records)
    folder = opened(copy)
    (chunk,) = folder.extract([list(folder.records())], "tree", with_features=True)
    assert chunk.programs is not None
    assert len(chunk.programs) == len(chunk.keys) == 7
    assert [(problem.file, problem.line) for problem in chunk.problems] == [(file, 1)]
    (nothing,) = folder.extract([list(folder.records())[:1]], "tree", with_features=True)
    assert (nothing.programs, len(nothing.problems)) == (None, 1)


def test_lines_that_are_no_records_are_problems_at_once(copy: Path) -> None:
    with (copy / "database_tuning_record.json").open("a") as file:
        file.write("no record\n")
    folder = opened(copy)
    assert folder.total == 8
    assert [problem.line for problem in folder.problems] == [9]


def test_a_folder_without_a_database_is_named(database: Database, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="is not a MetaSchedule database"):
        opened(tmp_path)
    shutil.copy(database.folder / "database_workload.json", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"it has no database_tuning_record\.json"):
        opened(tmp_path)


def test_they_are_tvms(task: Task, target: Any, candidates: list[Any]) -> None:
    workload = workload_of(task)
    context = ms.TuneContext(workload, target=target)
    expected = ms.feature_extractor.PerStoreFeature().extract_from(context, candidates)
    for ours, theirs in zip(per_store_features(workload, target, candidates), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs.numpy().astype(np.float32))


def test_what_tvm_refuses_has_no_row_and_the_others_have_theirs(task: Task, target: Any, candidates: list[Any]) -> None:
    workload = workload_of(task)
    # TVM fails for the three together.
    found = per_store_features(workload, target, [candidates[0], None, candidates[1]])
    assert found[1].shape == (0, 164)
    for ours, theirs in zip((found[0], found[2]), per_store_features(workload, target, candidates[:2]), strict=True):
        np.testing.assert_array_equal(ours, theirs)
