from __future__ import annotations

import lzma
import pickle
from collections import Counter
from pathlib import Path

import pytest

from tests.schedulers.auto_scheduler.small_tasks import DATA, matmul_task, project_data, sample_states, task_key
from tvm_gnn_cost.datasets.split import TEST_NETWORKS
from tvm_gnn_cost.datasets.tenset import RecordLine, parse_record
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.schedulers.auto_scheduler.folder import structural_hash
from tvm_gnn_cost.schedulers.auto_scheduler.records import parse_state, read_tenset
from tvm_gnn_cost.schedulers.auto_scheduler.sampling import steps_of
from tvm_gnn_cost.schedulers.auto_scheduler.task_files import load_pickle


def test_the_projects_data_is_read() -> None:
    data = project_data()
    assert len(data.files) == 89 + 340
    assert data.count == 2848 + 5440
    assert {"resnet_18", "mobilenet", "inception_v3", "squeezenet_v1.1"} <= data.networks
    records = [parse_record(one) for one in data.lines()]
    assert len({one.workload_key for one in records}) == 89 + 340
    assert {one.workload_key for one in records} <= set(data.tasks)
    assert Counter(one.failure for one in records if one.failure) == {"build-timeout": 22, "build-error": 11}


def test_only_what_was_measured_in_turn_tests() -> None:
    data = project_data()
    tested = {
        file.parent.name
        for file in data.files
        if not set(TEST_NETWORKS["auto-scheduler"]).isdisjoint(data.weights.get(task_key(file), {}))
    }
    assert tested == {"zen4-2core"}


def test_the_other_machines_data_is_of_other_tasks_and_tests_nothing() -> None:
    data = read_tenset(DATA, "epyc-2core")
    records = [parse_record(one) for one in data.lines()]
    assert (len(records), sum(bool(one.failure) for one in records)) == (3664, 9)
    assert {"-model=epyc-2core" in one.target for one in records} == {True}
    hashes = {structural_hash(data.tasks[key]) for key in {one.workload_key for one in records}}
    others = {structural_hash(data.tasks[task_key(file)]) for file in project_data().files}
    assert (len(hashes), len(hashes | others)) == (115, 543)
    held_out = TEST_NETWORKS["auto-scheduler"]
    tested = {key for key, weights in data.weights.items() if not set(held_out).isdisjoint(weights)}
    assert hashes.isdisjoint(structural_hash(data.tasks[key]) for key in tested)


def test_missing_parts_and_damaged_pickles_are_named(tmp_path: Path) -> None:
    info = tmp_path / "network_info"
    with pytest.raises(FileNotFoundError, match=r"network_info/all_tasks\.pkl is missing"):
        read_tenset(tmp_path)
    info.mkdir()
    tasks = lzma.decompress((DATA / "network_info" / "all_tasks.pkl.xz").read_bytes())
    for content in (b"", b"text", tasks[:-1], tasks[: len(tasks) // 2]):
        (info / "all_tasks.pkl").write_bytes(content)
        with pytest.raises(InputError, match=r"all_tasks\.pkl"):
            read_tenset(tmp_path)
    (info / "all_tasks.pkl").write_bytes(tasks)
    with pytest.raises(FileNotFoundError, match="measure_records"):
        read_tenset(tmp_path)
    for name in ("e5", "epyc"):
        (tmp_path / "measure_records" / name).mkdir(parents=True)
    with pytest.raises(InputError, match="e5, epyc"):
        read_tenset(tmp_path)
    with pytest.raises(FileNotFoundError, match="no folder t4"):
        read_tenset(tmp_path, "t4")
    assert read_tenset(tmp_path, "epyc").files == ()


def test_a_networks_weights_are_numbers(small: Path) -> None:
    path = small / "network_info" / "((net,[]),llvm).task.pkl"
    tasks = load_pickle(small / "network_info" / "all_tasks.pkl")[:2]
    path.write_bytes(pickle.dumps((tasks, [3, 1])))
    assert [weights["net"] for weights in read_tenset(small).weights.values() if "net" in weights] == [3, 1]
    path.write_bytes(pickle.dumps((tasks, ["c", "d"])))
    with pytest.raises(InputError, match="and a number for each"):
        read_tenset(small)


def test_a_compressed_folder_is_read_like_a_plain_one(small: Path) -> None:
    def content() -> tuple[set[str], dict[str, dict[str, int]], list[str]]:
        data = read_tenset(small)
        return set(data.tasks), data.weights, [line.text for line in data.lines()]

    plain = content()
    for path in [*small.rglob("*.pkl"), *small.rglob("*.json")]:
        path.with_name(f"{path.name}.xz").write_bytes(lzma.compress(path.read_bytes()))
        path.unlink()
    assert content() == plain
    assert all(plain)


def test_a_task_that_only_a_networks_pickle_has_is_known(small: Path) -> None:
    task = matmul_task()
    path = small / "network_info" / "((net,[]),llvm).task.pkl"
    path.write_bytes(pickle.dumps(([task], [7])))
    data = read_tenset(small)
    assert str(data.tasks[task.workload_key].workload_key) == task.workload_key
    assert data.weights[task.workload_key] == {"net": 7}


def test_a_state_has_its_records_steps_whatever_the_target() -> None:
    line = next(project_data().lines())
    task = project_data().tasks[parse_record(line).workload_key]
    other = RecordLine(line.file, line.line, line.text.replace("llvm -keys=cpu", "llvm -keys=cpu -link-params=0"))
    assert other.text != line.text
    assert steps_of(task, parse_state(line)) == steps_of(task, parse_state(other))


def test_steps_that_tvm_cannot_read_are_named(tmp_path: Path) -> None:
    task = matmul_task()
    text = steps_of(task, sample_states(task, 1)[0]).replace('["SP"', '["XX"')
    line = RecordLine(tmp_path, 1, f'{{"i": [["key", "llvm"], {text}], "r": [[1.0], 0, 1, 1], "v": "v0.6"}}')
    with pytest.raises(InputError, match=r"TVM cannot read the record .*Invalid step format: XX"):
        parse_state(line)
