"""Reads the tasks and states of a folder in TenSet's layout; ``datasets/tenset.py`` reads the rest without TVM."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tvm.auto_scheduler.measure_record import load_record_from_string

from tvm_gnn_cost.datasets.records import find_file, last_line
from tvm_gnn_cost.datasets.tenset import RecordLine, files_ending, network_name, record_files, record_lines
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.extraction import extract_states
from tvm_gnn_cost.schedulers.auto_scheduler.task_files import read_tasks, read_weighted_tasks
from tvm_gnn_cost.schedulers.scheduler import Task


@dataclass(frozen=True)
class TensetFolder:
    """The tasks of a folder in TenSet's layout, and its files of records.

    Attributes:
        folder: The folder.
        tasks: Workload key -> ``SearchTask``.
        weights: Workload key -> network -> number of occurrences of the task.
        files: The files of records.
    """

    folder: Path
    tasks: dict[str, Any]
    weights: dict[str, dict[str, int]]
    files: tuple[Path, ...]

    @property
    def networks(self) -> set[str]:
        """Names of the networks with a pickle."""
        return {network for weights in self.weights.values() for network in weights}

    def lines(self) -> Iterator[RecordLine]:
        """The lines of all files, without comments and empty lines."""
        for file in self.files:
            yield from record_lines(file)

    @cached_property
    def count(self) -> int:
        """Number of lines that :meth:`lines` yields."""
        return sum(1 for _ in self.lines())


def read_tenset(folder: Path, hardware: str | None = None) -> TensetFolder:
    """Reads the tasks of a folder in TenSet's layout and lists its files of records.

    Args:
        folder: The folder that holds ``network_info`` and ``measure_records``.
        hardware: The machine's folder in ``measure_records``; only needed if there are several.

    Raises:
        FileNotFoundError: a part of the layout is missing.
        InputError: a pickle is rejected or damaged, or ``hardware`` must be chosen.
    """
    info = folder / "network_info"
    all_tasks = find_file(info, "all_tasks.pkl")
    if all_tasks is None:
        raise FileNotFoundError(f"{folder} is not in TenSet's layout: network_info/all_tasks.pkl is missing")
    tasks = {str(task.workload_key): task for task in read_tasks(all_tasks)}
    weights: dict[str, dict[str, int]] = {}
    for path in files_ending(info, ".task.pkl"):
        network = network_name(path)
        for task, weight in read_weighted_tasks(path):
            tasks.setdefault(str(task.workload_key), task)
            weights.setdefault(str(task.workload_key), {})[network] = weight
    return TensetFolder(folder, tasks, weights, record_files(folder / "measure_records", hardware))


def parse_state(line: RecordLine) -> Any:
    """The state of a measure record, which has only steps.

    The record's target is ignored, because the steps do not depend on it and this TVM may reject it: TenSet's targets
    have ``-link-params=0``, which TVM 0.17 does not know.

    Raises:
        InputError: TVM cannot read the steps.
    """
    entry = json.loads(line.text)
    entry["i"][0] = [entry["i"][0][0], "llvm"]
    try:
        measured, _result = load_record_from_string(json.dumps(entry))
    # TVM's readers raise errors of any type.
    except Exception as error:
        raise InputError(f"TVM cannot read the record ({last_line(error)})") from error
    return measured.state


def count_applicable(groups: Sequence[tuple[Task, Sequence[RecordLine]]], jobs: int | None = None) -> list[int]:
    """Number of records of each group that apply to the group's task; 0 if a record crashes TVM.

    Args:
        groups: Tasks, each with records that may be of another task.
        jobs: Number of processes; one per core but at least two if None.
    """
    import joblib  # an optional package, and a cost model needs this module

    from tvm_gnn_cost.schedulers.isolation import in_processes

    chunks = [[(task.workload, tuple(lines))] for task, lines in groups]
    return list(in_processes(_count_applicable, chunks, jobs or max(2, joblib.cpu_count()), lambda _: 0))


def _count_applicable(chunk: Sequence[tuple[Any, Sequence[RecordLine]]]) -> int:
    ((search_task, lines),) = chunk
    states = []
    for line in lines:
        with suppress(InputError):
            states.append(parse_state(line))
    graphs = extract_states(search_task.compute_dag, states, detail="statements", threads=1, on_error="skip")
    return len(states) - len(graphs.errors)
