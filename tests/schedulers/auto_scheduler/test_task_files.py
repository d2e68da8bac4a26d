from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from tests.schedulers.auto_scheduler.small_tasks import conv_task, matmul_task
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.schedulers.auto_scheduler.records import read_tenset
from tvm_gnn_cost.schedulers.auto_scheduler.task_files import (
    load_pickle,
    read_tasks,
    read_weighted_tasks,
    save_pickle,
)


class Payload:
    """Pickles as a call that leaves a file behind."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_names_anything_else_is_refused_before_it_runs(tmp_path: Path, protocol: int) -> None:
    file, trace = tmp_path / "all_tasks.pkl", tmp_path / "it-ran"
    file.write_bytes(pickle.dumps([Payload(trace)], protocol))
    for read in (load_pickle, read_tasks, read_weighted_tasks):
        with pytest.raises(InputError, match=r"all_tasks\.pkl is rejected: it uses \w+\.mkdir"):
            read(file)
    assert not trace.exists()
    pickle.loads(file.read_bytes())  # the payload works
    assert trace.exists()


def test_os_system_is_refused(tmp_path: Path) -> None:
    trace = tmp_path / "it-ran"
    for text in (f"cos\nsystem\n(S'touch {trace}'\ntR.", f"cposix\nsystem\n(S'touch {trace}'\ntR."):
        (tmp_path / "tasks.pkl").write_text(text)
        with pytest.raises(InputError, match=r"is rejected: it uses (os|posix)\.system, which no task needs"):
            load_pickle(tmp_path / "tasks.pkl")
    assert not trace.exists()


def test_what_is_allowed_by_one_name_is_not_by_a_longer_one(tmp_path: Path) -> None:
    text = "ctvm.auto_scheduler.search_task\nSearchTask.__init__.__globals__\n."
    (tmp_path / "tasks.pkl").write_text(text)
    with pytest.raises(InputError, match="is rejected"):
        load_pickle(tmp_path / "tasks.pkl")


def test_tasks_come_back_as_they_were(tmp_path: Path) -> None:
    tasks = [matmul_task(), conv_task()]
    save_pickle(tmp_path / "info" / "all.pkl", tasks)
    save_pickle(tmp_path / "info" / "net.pkl", (tasks, [2, 5]))
    assert [one.workload_key for one in read_tasks(tmp_path / "info" / "all.pkl")] == [
        task.workload_key for task in tasks
    ]
    found = read_weighted_tasks(tmp_path / "info" / "net.pkl")
    assert [(one.workload_key, weight) for one, weight in found] == [
        (tasks[0].workload_key, 2),
        (tasks[1].workload_key, 5),
    ]
    assert str(found[0][0].target) == str(tasks[0].target)
    assert [path.name for path in (tmp_path / "info").iterdir()] != []


def test_a_damaged_pickle_is_named(tmp_path: Path) -> None:
    whole = pickle.dumps([matmul_task()])
    for content in (b"", b"text", whole[:-1], whole[: len(whole) // 2]):
        (tmp_path / "tasks.pkl").write_bytes(content)
        with pytest.raises(InputError, match=r"tasks\.pkl is (rejected|not a readable pickle of tasks)"):
            load_pickle(tmp_path / "tasks.pkl")


@pytest.mark.parametrize("content", [[1, 2, 3], {"a": 1}, 5, None, "text"])
def test_what_is_no_list_of_tasks_is_named(tmp_path: Path, content: object) -> None:
    save_pickle(tmp_path / "tasks.pkl", content)
    with pytest.raises(InputError, match=r"tasks\.pkl: expected a list of SearchTasks"):
        read_tasks(tmp_path / "tasks.pkl")


@pytest.mark.parametrize("content", [[1, 2, 3], ([1, 2], [1, 1]), (5, 6), ("ab", "cd"), ([], [1]), None])
def test_a_networks_pickle_that_is_no_pair_of_tasks_and_weights_is_named(small: Path, content: object) -> None:
    path = small / "network_info" / "((net,[]),llvm).task.pkl"
    path.write_bytes(pickle.dumps(content))
    with pytest.raises(InputError, match=r"\(\(net,\[\]\),llvm\)\.task\.pkl: expected a pair of tasks and weights"):
        read_tenset(small)
