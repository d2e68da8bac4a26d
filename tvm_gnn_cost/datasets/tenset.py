"""Reads folders in TenSet's layout (Zheng et al. 2021, github.com/tlc-pack/tenset); talks to TVM.

::

    network_info/all_tasks.pkl                  every task, a list of SearchTasks
    network_info/((resnet_18,[]),llvm).task.pkl  a network's tasks and how often each occurs in it
    measure_records/<hardware>/*.json           measure records of auto_scheduler, one a line
"""

from __future__ import annotations

import io
import json
import pickle
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tvm_gnn_cost.datasets.records import last_line
from tvm_gnn_cost.which_tvm import need

#: Everything that a task's pickle may name. Nothing of it does more than to make an object out of data.
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

#: ``MeasureErrorNo`` of ``auto_scheduler`` as the failures of our own collections are called.
FAILURES = {
    1: "instantiation-error",
    2: "build-error",
    3: "build-error",
    4: "run-error",
    5: "wrong-answer",
    6: "build-timeout",
    7: "run-timeout",
    8: "unknown",
}


class _TaskUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ALLOWED:
            raise pickle.UnpicklingError(f"it names {module}.{name}, which no task needs")
        return super().find_class(module, name)


def load_pickle(path: Path) -> Any:
    """The tasks in a pickle that names nothing but the classes of tasks.

    Raises:
        ValueError: it names anything else, and nothing of it was run; or it is damaged.
    """
    try:
        return _TaskUnpickler(io.BytesIO(path.read_bytes())).load()
    except pickle.UnpicklingError as error:
        raise ValueError(f"{path} is refused: {error}") from error
    # A damaged pickle fails with nearly any error, in Python or in TVM's deserialiser.
    except Exception as error:
        raise ValueError(f"{path} is no readable pickle of tasks ({last_line(error)})") from error


@dataclass(frozen=True)
class RecordLine:
    """One line of a file of records."""

    file: Path
    line: int
    text: str


@dataclass(frozen=True)
class Record:
    """A line that is a measure record, its state not yet read.

    Attributes:
        source: Where it stands.
        workload_key: Of its task.
        target: The target, as TVM wrote it.
        run_secs: Seconds, a number a repeat; none where the program failed.
        failure: Kind of failure; empty where there is none.
    """

    source: RecordLine
    workload_key: str
    target: str
    run_secs: tuple[float, ...]
    failure: str


def record_lines(file: Path) -> Iterator[RecordLine]:
    """Every line of a file of records but comments and empty ones, never more than one in memory."""
    with file.open("rb") as lines:
        for number, raw in enumerate(lines, 1):
            text = raw.decode("utf-8", "replace").strip()
            if text and not text.startswith("#"):
                yield RecordLine(file, number, text)


@dataclass(frozen=True)
class TensetFolder:
    """Tasks and files of records.

    Attributes:
        folder: Where it was read.
        tasks: Workload key -> ``SearchTask``.
        weights: Workload key -> network -> how often the task occurs in it.
        files: The files of records.
    """

    folder: Path
    tasks: dict[str, Any]
    weights: dict[str, dict[str, int]]
    files: tuple[Path, ...]

    @property
    def networks(self) -> set[str]:
        """Those that have a pickle."""
        return {network for weights in self.weights.values() for network in weights}

    def lines(self) -> Iterator[RecordLine]:
        """The :func:`record_lines` of every file."""
        for file in self.files:
            yield from record_lines(file)

    @cached_property
    def count(self) -> int:
        """Lines that :meth:`lines` yields."""
        return sum(1 for _ in self.lines())


def is_tenset(folder: Path) -> bool:
    """Whether a folder has TenSet's layout."""
    return (folder / "network_info").is_dir() or (folder / "measure_records").is_dir()


def read_tenset(folder: Path, hardware: str | None = None) -> TensetFolder:
    """Reads the tasks of a folder in TenSet's layout and finds its files of records.

    Args:
        folder: The folder that holds ``network_info`` and ``measure_records``.
        hardware: The folder of ``measure_records`` to take; not needed where there is only one.

    Raises:
        FileNotFoundError: a part of the layout is missing.
        WrongTVM: the installed TVM has no ``auto_scheduler``.
        ValueError: a pickle is refused or damaged, or ``hardware`` must be chosen.
    """
    need("auto_scheduler")
    info = folder / "network_info"
    if not (info / "all_tasks.pkl").is_file():
        raise FileNotFoundError(f"{folder} is no folder in TenSet's layout: it has no network_info/all_tasks.pkl")
    tasks = {str(task.workload_key): task for task in _tasks_of(info / "all_tasks.pkl")}
    weights: dict[str, dict[str, int]] = {}
    for path in sorted(info.glob("*.task.pkl")):
        network = network_name(path)
        for key, task, weight in _weighted_tasks_of(path):
            tasks.setdefault(key, task)
            weights.setdefault(key, {})[network] = weight
    return TensetFolder(folder, tasks, weights, _record_files(folder / "measure_records", hardware))


def _tasks_of(path: Path) -> Sequence[Any]:
    tasks = load_pickle(path)
    if not isinstance(tasks, list | tuple) or not all(hasattr(task, "workload_key") for task in tasks):
        raise ValueError(f"{path}: expected a list of SearchTasks")
    return tasks


def _weighted_tasks_of(path: Path) -> list[tuple[str, Any, int]]:
    """A network's workload keys and tasks, each with how often it occurs."""
    content = load_pickle(path)
    try:
        tasks, weights = content
        return [(str(task.workload_key), task, int(weight)) for task, weight in zip(tasks, weights, strict=True)]
    except (TypeError, ValueError, AttributeError):
        raise ValueError(f"{path}: expected a pair of tasks and weights: SearchTasks, and a number for each") from None


def _record_files(records: Path, hardware: str | None) -> tuple[Path, ...]:
    found = sorted(path.name for path in records.iterdir() if path.is_dir()) if records.is_dir() else []
    if hardware is None and len(found) == 1:
        hardware = found[0]
    if hardware is None and found:
        raise ValueError(f"{records} has records of several machines; choose one with --hardware: {', '.join(found)}")
    if hardware not in found:
        raise FileNotFoundError(f"{records} has no folder {hardware or 'with records'}; it has: {', '.join(found)}")
    return tuple(sorted((records / str(hardware)).glob("*.json")))


def network_name(path: Path) -> str:
    """``resnet_50`` of ``((resnet_50,[]),llvm).task.pkl``; with shapes, ``resnet_50[(1,3,224,224)]``."""
    name = path.name.removesuffix(".task.pkl")
    match = re.fullmatch(r"\(?\(?([^,()\[\]]+),(\[.*\])\)?,[^,]*\)?", name)
    if match is None:
        return name
    return match[1] if match[2] == "[]" else match[1] + match[2]


def parse_record(source: RecordLine) -> Record:
    """Checks a line as far as that needs no TVM.

    Raises:
        ValueError: it is no measure record; the message says why.
    """
    try:
        entry = json.loads(source.text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"not JSON ({error})") from None
    try:
        (task, state), (costs, error_code, *_rest) = entry["i"], entry["r"]
        workload_key, target = task[0], task[1]
        steps = state[1]
    except (TypeError, ValueError, KeyError, IndexError):
        raise ValueError('not a measure record: expected {"i": [task, state], "r": [costs, error, ...]}') from None
    if not isinstance(workload_key, str) or not isinstance(target, str) or not isinstance(steps, list):
        raise ValueError("not a measure record: the task needs a workload key and a target, the state a list of steps")
    version = entry.get("v")
    if not (isinstance(version, str) and re.fullmatch(r"v0\.[2-6]", version)):
        raise ValueError(f"record version {version!r}; v0.2 to v0.6 are known")
    if not isinstance(error_code, int) or (error_code != 0 and error_code not in FAILURES):
        raise ValueError(f"error code {error_code!r} is none of auto_scheduler's")
    if error_code:
        return Record(source, workload_key, target, (), FAILURES[error_code])
    if not isinstance(costs, list) or not costs:
        raise ValueError("it has no costs: the program was never measured")
    if not all(isinstance(cost, int | float) and 0 < cost < 1e10 for cost in costs):
        raise ValueError(f"costs {costs} are not all positive numbers of seconds")
    return Record(source, workload_key, target, tuple(map(float, costs)), "")


def parse_state(line: RecordLine) -> Any:
    """The state of a measure record, with nothing but its steps.

    The record's target is not read: TVMs refuse options of each other's (TenSet's say ``-link-params=0``, which 0.17
    does not know), and the steps do not depend on it.

    Raises:
        ValueError: TVM cannot read the steps.
    """
    from tvm.auto_scheduler.measure_record import load_record_from_string

    entry = json.loads(line.text)
    entry["i"][0] = [entry["i"][0][0], "llvm"]
    try:
        measured, _result = load_record_from_string(json.dumps(entry))
    # TVM raises whatever its JSON reader or a step's reader does.
    except Exception as error:
        raise ValueError(f"TVM cannot read the record ({last_line(error)})") from error
    return measured.state
