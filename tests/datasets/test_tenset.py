from __future__ import annotations

import json
import os
import pickle
from pathlib import Path

import pytest

from tests.graphs.ansor_tasks import DATA, copy_records, project_data, task_key
from tvm_gnn_cost.datasets.extract_tenset import extract_tenset, structural_hash
from tvm_gnn_cost.datasets.programs import PER_STORE_COLUMNS
from tvm_gnn_cost.datasets.split import split
from tvm_gnn_cost.datasets.store import GraphStore
from tvm_gnn_cost.datasets.tenset import (
    RecordLine,
    load_pickle,
    network_name,
    parse_record,
    read_tenset,
)
from tvm_gnn_cost.networks.catalogue import TENSET_HELD_OUT

RECORDS = DATA / "measure_records" / "cpu-2core"
KEY = '["d7b65649a4dd54becea0a52aabbc5af5", 1, 1000, 1, 1000]'


def line(text: str) -> RecordLine:
    return RecordLine(Path("log.json"), 1, text)


def record(version: str = "v0.6", code: int = 0, costs: object = (0.5, 0.25)) -> str:
    return json.dumps({"i": [[KEY, "llvm"], [[], []]], "r": [costs, code, 1.0, 7], "v": version})


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A folder with the first records of five of the project's tasks."""
    folder = tmp_path / "data"
    copy_records(folder, sorted(RECORDS.glob("*.json"))[::30], 8)
    return folder


def test_the_projects_data_is_read():
    data = project_data()
    assert len(data.files) == 140
    assert len(data.tasks) == 369  # of both machines; not every task of a network was measured
    assert data.count == 4480
    networks = {network for weights in data.weights.values() for network in weights}
    assert {"resnet_18", "mobilenet", "inception_v3", "squeezenet_v1.1"} <= networks
    records = [parse_record(one) for one in data.lines()]
    assert len({one.workload_key for one in records}) == 140
    assert {one.workload_key for one in records} <= set(data.tasks)
    assert sum(bool(one.failure) for one in records) == 5
    assert {one.failure for one in records} == {"", "build-timeout"}


def test_the_other_machines_data_is_of_other_tasks_and_tests_nothing():
    data = read_tenset(DATA, "epyc-2core")
    records = [parse_record(one) for one in data.lines()]
    assert (len(records), sum(bool(one.failure) for one in records)) == (3664, 9)
    assert {"-model=epyc-2core" in one.target for one in records} == {True}
    hashes = {structural_hash(data.tasks[key]) for key in {one.workload_key for one in records}}
    others = {structural_hash(data.tasks[task_key(file)]) for file in project_data().files}
    assert (len(hashes), len(hashes | others)) == (115, 254)
    tested = {key for key, weights in data.weights.items() if not set(TENSET_HELD_OUT).isdisjoint(weights)}
    assert hashes.isdisjoint(structural_hash(data.tasks[key]) for key in tested)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("((resnet_18,[]),llvm).task.pkl", "resnet_18"),
        ("((squeezenet_v1.1,[]),llvm).task.pkl", "squeezenet_v1.1"),
        ("((resnet_50,[(1,3,224,224)]),cuda).task.pkl", "resnet_50[(1,3,224,224)]"),
        ("mine.task.pkl", "mine"),
    ],
)
def test_network_names(name: str, expected: str):
    assert network_name(Path(name)) == expected


@pytest.mark.parametrize("version", ["v0.2", "v0.3", "v0.4", "v0.5", "v0.6"])
def test_versions(version: str):
    found = parse_record(line(record(version)))
    assert (found.workload_key, found.target, found.run_secs, found.failure) == (KEY, "llvm", (0.5, 0.25), "")


@pytest.mark.parametrize(
    ("code", "failure"),
    [
        (1, "instantiation-error"),
        (2, "build-error"),
        (3, "build-error"),
        (4, "run-error"),
        (5, "wrong-answer"),
        (6, "build-timeout"),
        (7, "run-timeout"),
        (8, "unknown"),
    ],
)
def test_error_codes(code: int, failure: str):
    found = parse_record(line(record(code=code, costs=[1e10])))
    assert (found.run_secs, found.failure) == ((), failure)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"i": [', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1, 2]", "not a measure record"),
        ('{"i": [["key"], [[], []]], "r": [[1], 0, 1, 1], "v": "v0.6"}', "not a measure record"),
        ('{"i": [[1, "llvm"], [[], []]], "r": [[1], 0, 1, 1], "v": "v0.6"}', "workload key"),
        (record("v0.1"), "version 'v0.1'"),
        (record(code=9), "error code 9"),
        (record(costs=[]), "no costs"),
        (record(costs=[-1]), "not all positive"),
        (record(costs=["1"]), "not all positive"),
        (record(costs=[float("nan")]), "not all positive"),
    ],
)
def test_broken_lines(text: str, reason: str):
    with pytest.raises(ValueError, match=reason):
        parse_record(line(text))


def test_a_target_that_this_tvm_does_not_know_does_not_matter(small: Path, tmp_path: Path):
    # As TenSet's own records have it.
    for path in (small / "measure_records" / "cpu").glob("*.json"):
        path.write_text(path.read_text().replace("llvm -keys=cpu", "llvm -keys=cpu -link-params=0"))
    store = GraphStore(tmp_path / "store")
    done = extract_tenset(small, store, detail="statements", per_store_features=False, jobs=1)
    assert done.problems == ()
    assert done.added == 8 * 5
    assert all("-link-params=0" in task.target for task in store.tasks())


class Payload:
    """Pickles as a call that leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_names_anything_else_is_refused_before_it_runs(tmp_path: Path, protocol: int):
    file, trace = tmp_path / "all_tasks.pkl", tmp_path / "it-ran"
    file.write_bytes(pickle.dumps([Payload(trace)], protocol))
    with pytest.raises(ValueError, match=r"all_tasks\.pkl is refused: it names \w+\.mkdir"):
        load_pickle(file)
    assert not trace.exists()
    pickle.loads(file.read_bytes())  # the payload works
    assert trace.exists()


def test_damaged_pickles_and_missing_parts(tmp_path: Path):
    info = tmp_path / "network_info"
    with pytest.raises(FileNotFoundError, match=r"no network_info/all_tasks\.pkl"):
        read_tenset(tmp_path)
    info.mkdir()
    tasks = (DATA / "network_info" / "all_tasks.pkl").read_bytes()
    for content in (b"", b"text", tasks[:-1], tasks[: len(tasks) // 2]):
        (info / "all_tasks.pkl").write_bytes(content)
        with pytest.raises(ValueError, match=r"all_tasks\.pkl"):
            read_tenset(tmp_path)
    (info / "all_tasks.pkl").write_bytes(tasks)
    with pytest.raises(FileNotFoundError, match="measure_records"):
        read_tenset(tmp_path)
    for name in ("e5", "epyc"):
        (tmp_path / "measure_records" / name).mkdir(parents=True)
    with pytest.raises(ValueError, match="e5, epyc"):
        read_tenset(tmp_path)
    with pytest.raises(FileNotFoundError, match="no folder t4"):
        read_tenset(tmp_path, "t4")
    assert read_tenset(tmp_path, "epyc").files == ()


@pytest.mark.parametrize("content", [[1, 2, 3], ([1, 2], [1, 1]), (5, 6), ("ab", "cd"), ([], [1]), None])
def test_a_networks_pickle_that_is_no_pair_of_tasks_and_weights_is_named(small: Path, content: object):
    path = small / "network_info" / "((net,[]),llvm).task.pkl"
    path.write_bytes(pickle.dumps(content))
    with pytest.raises(ValueError, match=r"\(\(net,\[\]\),llvm\)\.task\.pkl: expected a pair of tasks and weights"):
        read_tenset(small)


def test_a_networks_weights_are_numbers(small: Path):
    path = small / "network_info" / "((net,[]),llvm).task.pkl"
    tasks = load_pickle(small / "network_info" / "all_tasks.pkl")[:2]
    path.write_bytes(pickle.dumps((tasks, [3, 1])))
    assert [weights["net"] for weights in read_tenset(small).weights.values() if "net" in weights] == [3, 1]
    path.write_bytes(pickle.dumps((tasks, ["c", "d"])))
    with pytest.raises(ValueError, match="and a number for each"):
        read_tenset(small)


def test_extraction_resumes_and_reports(small: Path, tmp_path: Path):
    files = sorted((small / "measure_records" / "cpu").glob("*.json"))
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
    done = extract_tenset(small, store, detail="statements", programs_at_once=16, jobs=2)
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

    again = extract_tenset(small, store, detail="statements", jobs=1)
    assert (again.added, again.known, again.problems) == (0, 8 * len(files), done.problems)
    with files[1].open("a") as file:
        file.write((RECORDS / files[1].name).read_text().splitlines()[20] + "\n")
    assert extract_tenset(small, store, detail="statements", jobs=1).added == 1
    with pytest.raises(ValueError, match="extract into another folder"):
        extract_tenset(small, store, detail="tree")


def test_a_record_that_crashes_tvm_is_left_out_and_the_rest_goes_on(small: Path, tmp_path: Path):
    first, file, *others = sorted((small / "measure_records" / "cpu").glob("*.json"))
    for other in others:
        other.unlink()
    first.write_text("".join(first.read_text().splitlines(keepends=True)[:4]))
    lines = file.read_text().splitlines()[:3]
    bad = json.loads(lines[0])
    bad["i"][1][1] = [["CHW", 0, "local"]]  # TVM takes any stage for a computed one, an input too
    file.write_text("\n".join([*lines, json.dumps(bad)]) + "\n")
    store = GraphStore(tmp_path / "store")
    done = extract_tenset(small, store, detail="statements", per_store_features=False, programs_at_once=4, jobs=2)
    (problem,) = done.problems
    assert (problem.file, problem.line) == (file, 4)
    assert "crashes" in problem.reason
    assert done.added == len(store) == 4 + 3


def test_held_out_networks_share_no_task_with_training(small: Path, tmp_path: Path):
    store = GraphStore(tmp_path / "store")
    extract_tenset(small, store, detail="statements", per_store_features=False, jobs=1)
    programs = store.load()
    networks = sorted({network for task in programs.tasks for network in task.weights})
    parts = split(programs, networks[:1], 0.3, 0)
    hashes = [
        {programs.tasks[i].hash for i in programs.task[rows]} for rows in (parts.train, parts.validation, parts.test)
    ]
    train, valid, test = hashes
    assert train
    assert test
    assert not (train | valid) & test


def tasks_by_part(store: GraphStore, held_out: str) -> list[set[str]]:
    programs = store.load()
    parts = split(programs, [held_out], 0.3, 0)
    return [
        {programs.tasks[i].hash for i in programs.task[rows]} for rows in (parts.train, parts.validation, parts.test)
    ]


def test_a_network_found_later_reaches_the_programs_that_are_stored(small: Path, tmp_path: Path):
    def extract(name: str) -> GraphStore:
        store = GraphStore(tmp_path / name)
        extract_tenset(small, store, detail="statements", per_store_features=False, jobs=1)
        return store

    pickle_of_it = small / "network_info" / "((later,[]),llvm).task.pkl"
    extract("store")
    # The network shares two tasks with those that are there, and no record is new.
    tasks = load_pickle(small / "network_info" / "all_tasks.pkl")[:2]
    pickle_of_it.write_bytes(pickle.dumps((tasks, [2, 1])))
    store, fresh = extract("store"), extract("fresh")
    assert len(store) == len(fresh) == 8 * 5
    assert {task.hash: dict(task.weights) for task in store.tasks()} == {
        task.hash: dict(task.weights) for task in fresh.tasks()
    }
    assert tasks_by_part(store, "later") == tasks_by_part(fresh, "later")
    assert len(tasks_by_part(store, "later")[2]) == 2
    shards = len(store.shards())
    assert len(extract("store").shards()) == shards


def test_machines_are_kept_apart_where_the_target_does_not_name_them(small: Path, tmp_path: Path):
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
        extract_tenset(small, store, hardware=hardware, detail="statements", per_store_features=False, jobs=1)
    programs = store.load()
    assert len(programs) == 2 * 8 * 5
    # Those in the folder that the target names need no further name.
    assert [task.hardware for task in programs.tasks] == [""] * 5 + ["other"] * 5
    assert len({task.hash for task in programs.tasks}) == 5
    best = [programs.throughput()[programs.task == number].max() for number in range(10)]
    assert best == [1.0] * 10


def test_a_folder_that_grew_is_read_again(small: Path, tmp_path: Path):
    path, store = small / "network_info" / "all_tasks.pkl", GraphStore(tmp_path / "store")
    tasks = load_pickle(path)
    weighted = read_tenset(small).weights
    late = next(task for task in tasks if str(task.workload_key) not in weighted)
    path.write_bytes(pickle.dumps([task for task in tasks if task is not late]))
    done = extract_tenset(small, store, detail="statements", per_store_features=False, jobs=1)
    assert (done.added, len(done.problems)) == (8 * 4, 8)
    path.write_bytes(pickle.dumps(list(tasks)))
    done = extract_tenset(small, store, detail="statements", per_store_features=False, jobs=1)
    assert (done.added, done.known, done.problems) == (8, 8 * 4, ())
