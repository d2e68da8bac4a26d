"""Records in TenSet's layout become programs; most of it through ``extract``, which drives the folder."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm.auto_scheduler.feature import get_per_store_features_from_states

from tests.schedulers.auto_scheduler.small_tasks import RECORDS, broken_state, matmul_task
from tvm_gnn_cost.datasets.programs import PER_STORE_COLUMNS
from tvm_gnn_cost.datasets.split import split
from tvm_gnn_cost.datasets.store import GraphStore
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.schedulers.auto_scheduler.folder import RecordFolder, per_store_features, structural_hash
from tvm_gnn_cost.schedulers.auto_scheduler.records import read_tenset
from tvm_gnn_cost.schedulers.auto_scheduler.task_files import load_pickle
from tvm_gnn_cost.schedulers.scheduler import Task
from tvm_gnn_cost.tuning.extract import extract


def record(workload_key: str = '["d7b65649a4dd54becea0a52aabbc5af5", 1, 1000, 1, 1000]') -> str:
    return json.dumps({"i": [[workload_key, "llvm"], [[], []]], "r": [[0.5, 0.25], 0, 1.0, 7], "v": "v0.6"})


def files_in(folder: Path) -> list[Path]:
    return sorted((folder / "measure_records" / "cpu").glob("*.json"))


def test_every_line_is_a_record_with_a_key_of_its_own(small: Path) -> None:
    files = files_in(small)
    files[0].write_text("# a comment\n\n" + files[0].read_text() + "no record\n")
    folder = RecordFolder(small, None, jobs=1)
    records = list(folder.records())
    assert folder.total == len(records) == len({key for key, _ in records}) == 8 * 5 + 1
    assert folder.networks == read_tenset(small).networks
    # The same line in another file is the same measurement.
    files[1].write_text(files[0].read_text())
    assert {key for key, _ in list(folder.records())[9:18]} == {key for key, _ in records[:9]}


def test_the_task_of_a_record(small: Path) -> None:
    folder = RecordFolder(small, None, jobs=1)
    infos = {info.identity: info for _, line in folder.records() if (info := folder.task_info(line)) is not None}
    assert len(infos) == 5
    for info in infos.values():
        assert (info.scheduler, info.hardware) == ("auto-scheduler", "cpu")
        assert json.loads(info.target).startswith("llvm")
    files_in(small)[0].write_text(record() + "\n")
    assert folder.task_info(next(folder.records())[1]) is None


def test_a_target_that_this_tvm_does_not_know_does_not_matter(small: Path, tmp_path: Path) -> None:
    # As TenSet's own records have it.
    for path in files_in(small):
        path.write_text(path.read_text().replace("llvm -keys=cpu", "llvm -keys=cpu -link-params=0"))
    done = extract(small, tmp_path / "store", features=False, jobs=1)
    assert done.problems == ()
    assert done.added == 8 * 5
    assert all("-link-params=0" in task.target for task in GraphStore(tmp_path / "store").tasks())


def test_extraction_resumes_and_reports(small: Path, tmp_path: Path) -> None:
    files = files_in(small)
    with files[0].open("a") as file:
        file.write("# a comment\n\n{broken\n")
        file.write(record() + "\n")  # of a task that no pickle has
        steps = json.loads(files[0].read_text().splitlines()[0])
        steps["i"][1][1] = [["SP", 999, 0, 1, [1], 1]]
        steps["r"][0] = [1e-9]  # it must not become the best of its task
        file.write(json.dumps(steps) + "\n")
        steps["r"][:2] = [[1e10], 7]  # nor does a record of a failure count that nothing can be replayed of
        file.write(json.dumps(steps) + "\n")
    store = GraphStore(tmp_path / "store")
    done = extract(small, store.folder, programs_at_once=16, jobs=2)
    assert (done.added, done.known) == (8 * len(files), 0)
    assert [(problem.file, problem.line) for problem in done.problems] == [(files[0], line) for line in range(11, 15)]
    for problem, reason in zip(done.problems, ("not JSON", "in no pickle", "replayed", "replayed"), strict=True):
        assert reason in problem.reason
    programs = store.load(with_features=True)
    assert programs.graphs.errors == {}
    assert programs.graphs.node_counts.min() > 10
    assert programs.latency.min() > 1e-9
    features = programs.per_store_features
    assert features is not None
    assert features.rows.shape[1] == PER_STORE_COLUMNS
    assert all(len(features[i]) > 0 for i in range(len(programs)))
    assert {task.scheduler for task in programs.tasks} == {"auto-scheduler"}
    assert len({task.hash for task in programs.tasks}) == len(files)

    again = extract(small, store.folder, jobs=1)
    assert (again.added, again.known, again.problems) == (0, 8 * len(files), done.problems)
    with files[1].open("a") as file:
        file.write((RECORDS / files[1].name).read_text().splitlines()[20] + "\n")
    assert extract(small, store.folder, jobs=1).added == 1
    with pytest.raises(InputError, match="extract into another folder"):
        extract(small, store.folder, detail="tree")


@pytest.mark.slow
def test_a_record_that_crashes_tvm_is_left_out_and_the_rest_goes_on(small: Path, tmp_path: Path) -> None:
    first, file, *others = files_in(small)
    for other in others:
        other.unlink()
    first.write_text("".join(first.read_text().splitlines(keepends=True)[:4]))
    lines = file.read_text().splitlines()[:3]
    bad = json.loads(lines[0])
    bad["i"][1][1] = [["CHW", 0, "local"]]  # TVM takes any stage for a computed one, an input too
    file.write_text("\n".join([*lines, json.dumps(bad)]) + "\n")
    done = extract(small, tmp_path / "store", features=False, programs_at_once=4, jobs=2)
    (problem,) = done.problems
    assert (problem.file, problem.line) == (file, 4)
    assert "crashes" in problem.reason
    assert done.added == len(GraphStore(tmp_path / "store")) == 4 + 3


def tasks_by_part(store: GraphStore, held_out: str) -> list[set[str]]:
    programs = store.load()
    parts = split(programs, [held_out], 0.3, 0)
    return [
        {programs.tasks[i].hash for i in programs.task[rows]} for rows in (parts.train, parts.validation, parts.test)
    ]


def test_held_out_networks_share_no_task_with_training(small: Path, tmp_path: Path) -> None:
    extract(small, tmp_path / "store", features=False, jobs=1)
    store = GraphStore(tmp_path / "store")
    networks = sorted({network for task in store.load().tasks for network in task.weights})
    train, valid, test = tasks_by_part(store, networks[0])
    assert train
    assert test
    assert not (train | valid) & test


def test_a_network_found_later_reaches_the_programs_that_are_stored(small: Path, tmp_path: Path) -> None:
    def extracted(name: str) -> GraphStore:
        extract(small, tmp_path / name, features=False, jobs=1)
        return GraphStore(tmp_path / name)

    pickle_of_it = small / "network_info" / "((later,[]),llvm).task.pkl"
    extracted("store")
    # The network shares two tasks with those that are there, and no record is new.
    tasks = load_pickle(small / "network_info" / "all_tasks.pkl")[:2]
    pickle_of_it.write_bytes(pickle.dumps((tasks, [2, 1])))
    store, fresh = extracted("store"), extracted("fresh")
    assert len(store) == len(fresh) == 8 * 5
    assert {task.hash: dict(task.weights) for task in store.tasks()} == {
        task.hash: dict(task.weights) for task in fresh.tasks()
    }
    assert tasks_by_part(store, "later") == tasks_by_part(fresh, "later")
    assert len(tasks_by_part(store, "later")[2]) == 2
    shards = len(store.shards())
    assert len(extracted("store").shards()) == shards


def test_machines_are_kept_apart_where_the_target_does_not_name_them(small: Path, tmp_path: Path) -> None:
    cpu, store = small / "measure_records" / "cpu", GraphStore(tmp_path / "store")
    named, other = cpu.with_name("cpu-2core"), cpu.with_name("other")
    cpu.rename(named)
    other.mkdir()
    for path in named.glob("*.json"):
        entries = [json.loads(text) for text in path.read_text().splitlines()]
        for entry in entries:
            entry["r"][0] = [seconds / 10 for seconds in entry["r"][0]]
        (other / path.name).write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    for hardware in (named.name, other.name):
        extract(small, store.folder, hardware=hardware, features=False, jobs=1)
    programs = store.load()
    assert len(programs) == 2 * 8 * 5
    # Those in the folder that the target names need no further name.
    assert [task.hardware for task in programs.tasks] == [""] * 5 + ["other"] * 5
    assert len({task.hash for task in programs.tasks}) == 5
    best = [programs.throughput()[programs.task == number].max() for number in range(10)]
    assert best == [1.0] * 10


def test_a_folder_that_grew_is_read_again(small: Path, tmp_path: Path) -> None:
    path, store = small / "network_info" / "all_tasks.pkl", tmp_path / "store"
    tasks = load_pickle(path)
    weighted = read_tenset(small).weights
    late = next(task for task in tasks if str(task.workload_key) not in weighted)
    path.write_bytes(pickle.dumps([task for task in tasks if task is not late]))
    done = extract(small, store, features=False, jobs=1)
    assert (done.added, len(done.problems)) == (8 * 4, 8)
    path.write_bytes(pickle.dumps(list(tasks)))
    done = extract(small, store, features=False, jobs=1)
    assert (done.added, done.known, done.problems) == (8, 8 * 4, ())


def test_tasks_are_the_same_by_what_they_compute() -> None:
    assert structural_hash(matmul_task(8, 8, 8)) == structural_hash(matmul_task(8, 8, 8))
    assert structural_hash(matmul_task(8, 8, 8)) != structural_hash(matmul_task(8, 8, 16))


def test_they_are_tvms(task: Task, candidates: list[Any]) -> None:
    expected = get_per_store_features_from_states(candidates, task.workload)
    for ours, theirs in zip(per_store_features(task.workload, candidates), expected, strict=True):
        # TVM numbers buffers by their addresses, so some columns differ from call to call.
        assert ours.shape == theirs.shape
        assert ours.dtype == np.float32
        assert np.isfinite(ours).all()


def test_what_tvm_cannot_lower_has_no_row_and_the_others_have_theirs(task: Task, candidates: list[Any]) -> None:
    states = [candidates[0], broken_state(task.workload), candidates[1]]
    first, none, second = per_store_features(task.workload, states)
    assert none.shape == (0, 164)
    assert len(first) > 0
    assert len(second) > 0
