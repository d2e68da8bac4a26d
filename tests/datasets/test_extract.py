from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.datasets.extract import PER_STORE_COLUMNS, extract_collection
from tvm_gnn_cost.datasets.meta_schedule import read_collection
from tvm_gnn_cost.datasets.records import summarise_repeats
from tvm_gnn_cost.datasets.store import GraphStore
from tvm_gnn_cost.graphs.extract import extract_graphs

from .small_database import Database, write_lines


class _Progress:
    def __init__(self) -> None:
        self.seen: list[tuple[int, int]] = []

    def extracted(self, done: int, total: int) -> None:
        self.seen.append((done, total))


def test_the_store_holds_the_graphs_of_the_measured_modules(database: Database, graph_store: GraphStore) -> None:
    programs = graph_store.load()
    direct = extract_graphs(database.mods)
    for i in range(len(direct)):
        ours, theirs = programs.graphs.select([i]), direct.select([i])
        assert [ours.type_names[t] for t in ours.node_type] == [theirs.type_names[t] for t in theirs.node_type]
        np.testing.assert_array_equal(ours.values, theirs.values)
        np.testing.assert_array_equal(ours.edges, theirs.edges)
        np.testing.assert_array_equal(ours.relation, theirs.relation)
    assert len(programs) == len(direct)


def test_the_store_holds_what_was_measured(database: Database, graph_store: GraphStore) -> None:
    programs = graph_store.load()
    records = read_collection(database.folder).records
    assert [programs.tasks[t].hash for t in programs.task] == database.task_hashes
    for i, record in enumerate(records):
        assert programs.failure[i] == record.failure
        if record.failure:
            assert programs.latency[i] == np.inf
        else:
            assert programs.latency[i] == np.median(record.run_secs)
            assert programs.noise[i] == pytest.approx(np.std(record.run_secs, ddof=1) / np.mean(record.run_secs))
    assert programs.throughput().max() == 1.0


def test_per_store_features_are_those_of_tvm(database: Database, graph_store: GraphStore) -> None:
    features = graph_store.load(with_features=True).per_store_features
    assert features is not None
    collection = read_collection(database.folder)
    for i, record in enumerate(collection.records):
        target = tvm.target.Target(json.loads(record.target))
        context = ms.TuneContext(collection.workload(record).mod, target=target)
        candidate = collection.replay(record)
        expected = ms.feature_extractor.PerStoreFeature().extract_from(context, [candidate])[0].numpy()
        assert expected.shape[1] == PER_STORE_COLUMNS
        np.testing.assert_array_equal(features[i], expected.astype(np.float32))


def test_an_interrupted_extraction_goes_on(database: Database, tmp_path: Path, graph_store: GraphStore) -> None:
    store = GraphStore(tmp_path / "store")
    half = Path(shutil.copytree(database.folder, tmp_path / "half"))
    lines = (half / "database_tuning_record.json").read_text().splitlines()
    (half / "database_tuning_record.json").write_text("".join(line + "\n" for line in lines[:3]))
    assert extract_collection(half, store, per_store_features=False).added == 3
    progress = _Progress()
    done = extract_collection(database.folder, store, per_store_features=False, programs_at_once=2, progress=progress)
    assert (done.added, done.known) == (5, 3)
    assert progress.seen == [(5, 8), (7, 8), (8, 8)]
    np.testing.assert_array_equal(store.load().graphs.values, graph_store.load().graphs.values)
    assert extract_collection(database.folder, store).added == 0


def test_a_record_that_cannot_be_replayed_is_reported_and_left_out(database: Database, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(database.folder, tmp_path / "copy"))
    file = folder / "database_tuning_record.json"
    records = [json.loads(line) for line in file.read_text().splitlines()]
    records[0][0] = 1
    write_lines(file, records)
    done = extract_collection(folder, GraphStore(tmp_path / "store"), per_store_features=False)
    assert done.added == 7
    assert [(problem.file, problem.line) for problem in done.problems] == [(file, 1)]


def test_a_network_found_later_reaches_the_programs_that_are_stored(database: Database, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(database.folder, tmp_path / "copy"))
    store = GraphStore(tmp_path / "store")
    task = database.task_hashes[0]
    for weights in ({"first": 1}, {"first": 1, "second": 3}):
        write_lines(folder / "tasks.jsonl", [{"hash": task, "name": "dense", "weights": weights}])
        extract_collection(folder, store, per_store_features=False)
        assert {t.hash: dict(t.weights) for t in store.load().tasks}[task] == weights
    shards = len(store.shards())
    assert extract_collection(folder, store).known == 8
    assert len(store.shards()) == shards


def test_statements_are_a_smaller_graph(database: Database, tmp_path: Path, graph_store: GraphStore) -> None:
    store = GraphStore(tmp_path / "store")
    extract_collection(database.folder, store, detail="statements", per_store_features=False)
    assert (store.load().graphs.node_counts < graph_store.load().graphs.node_counts).all()


def test_repeats_are_summarised_by_their_median() -> None:
    assert summarise_repeats([3.0, 1.0, 2.0]) == (2.0, 0.5)
    assert summarise_repeats([])[0] == np.inf
    assert np.isnan(summarise_repeats([1.0])[1])
