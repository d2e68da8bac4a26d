"""Reads and writes pickles of tasks in TenSet's layout, with an allow-list so that a pickle cannot run code."""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tvm_gnn_cost.datasets.records import last_line, open_file
from tvm_gnn_cost.datasets.tenset import network_file
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import replacing
from tvm_gnn_cost.schedulers.scheduler import Task

#: All names that a pickle of tasks may use; each only makes an object from data.
ALLOWED = frozenset(
    {
        ("tvm.auto_scheduler.compute_dag", "ComputeDAG"),
        ("tvm.auto_scheduler.search_task", "HardwareParams"),
        ("tvm.auto_scheduler.search_task", "SearchTask"),
        ("tvm.ir.container", "Array"),
        ("tvm.ir.container", "Map"),
        ("tvm.runtime.container", "String"),
        ("tvm.runtime.object", "Object"),
        ("tvm.runtime.object", "_new_object"),
        ("tvm.target.target", "Target"),
        ("tvm.tir.expr", "IntImm"),
    }
)


class _TaskUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it uses {module}.{name}, which no task needs")
        return super().find_class(module, name)


def load_pickle(path: Path) -> Any:
    """The content of a pickle, plain or compressed, with only the names of ``ALLOWED``.

    Raises:
        InputError: the pickle has other names, which are not called, or is damaged.
    """
    try:
        with open_file(path) as opened:
            return _TaskUnpickler(io.BytesIO(opened.read())).load()
    except pickle.UnpicklingError as error:
        raise InputError(f"{path} is rejected: {error}") from error
    # For a damaged pickle, Python and TVM's deserialiser raise errors of any type.
    except Exception as error:
        raise InputError(f"{path} is not a readable pickle of tasks ({last_line(error)})") from error


def save_pickle(path: Path, content: Any) -> None:
    """Writes a pickle atomically."""
    with replacing(path) as unfinished:
        unfinished.write_bytes(pickle.dumps(content))


def save_tasks(folder: Path, workloads: Sequence[tuple[str, Sequence[Task]]]) -> None:
    """Adds the tasks of workloads to the folder's ``all_tasks.pkl``, and writes the pickle of each network.

    Raises:
        InputError: the folder's pickle is rejected or damaged.
    """
    info = folder / "network_info"
    path = info / "all_tasks.pkl"
    there = {str(task.workload_key): task for task in (read_tasks(path) if path.exists() else [])}
    new = {task.key: task.workload for _, tasks in workloads for task in tasks}
    save_pickle(path, list((new | there).values()))
    for name, tasks in workloads:
        if "/" not in name:  # not an operator
            save_pickle(network_file(info, name), ([task.workload for task in tasks], [task.weight for task in tasks]))


def read_tasks(path: Path) -> Sequence[Any]:
    """The ``SearchTask``s of ``all_tasks.pkl``.

    Raises:
        InputError: the file is rejected or damaged, or not a list of tasks.
    """
    tasks = load_pickle(path)
    if not isinstance(tasks, list | tuple) or not all(hasattr(task, "workload_key") for task in tasks):
        raise InputError(f"{path}: expected a list of SearchTasks")
    return tasks


def read_weighted_tasks(path: Path) -> list[tuple[Any, int]]:
    """A network's ``SearchTask``s, each with its number of occurrences.

    Raises:
        InputError: the file is rejected or damaged, or not a pair of tasks and weights.
    """
    content = load_pickle(path)
    try:
        tasks, weights = content
        weighted = [(task, int(weight)) for task, weight in zip(tasks, weights, strict=True)]
        _ = [task.workload_key for task in tasks]
    except (TypeError, ValueError, AttributeError):
        raise InputError(f"{path}: expected a pair of tasks and weights: SearchTasks, and a number for each") from None
    return weighted
