"""Turns a plain log of ``auto_scheduler`` into a folder in TenSet's layout, which ``extract`` and ``evaluate`` read.

A log identifies its tasks by workload keys, which differ between versions of TVM, and does not contain the tasks. They
are extracted from the network again, and matched by tensor shapes and by whether the log's programs apply to them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tvm_gnn_cost.datasets.records import Problem
from tvm_gnn_cost.datasets.tenset import RecordLine, parse_record, record_file, record_lines
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import check_folder, parse_json, write_text
from tvm_gnn_cost.progress import Progress, Step, ignore
from tvm_gnn_cost.schedulers import package
from tvm_gnn_cost.schedulers.scheduler import Task


@dataclass(frozen=True)
class ImportLogResult:
    """The result of an import.

    Attributes:
        folder: The folder.
        records: Number of records written.
        tasks: Number of tasks of the network with records.
        network_tasks: Number of tasks of the network.
        problems: Unreadable lines, and the first line of each task that could not be matched.
    """

    folder: Path
    records: int
    tasks: int
    network_tasks: int
    problems: tuple[Problem, ...]


def import_log(
    log: str | os.PathLike[str],
    folder: str | os.PathLike[str],
    network: Any,
    *,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    hardware: str = "log",
    jobs: int | None = None,
    progress: Progress = ignore,
) -> ImportLogResult:
    """Adds the records of a log, with their tasks, to a folder in TenSet's layout.

    Args:
        log: A file of measure records, one per line.
        folder: The folder.
        network: The network that was tuned, as ``tune`` takes it.
        shapes: Input name -> shape, for inputs with dynamic dimensions.
        hardware: The folder in ``measure_records`` for the machine that measured.
        jobs: Number of processes that apply the records; one per core if None.
        progress: Receives events.

    Raises:
        FileNotFoundError: there is no such log.
        InputError: the log has no record of a task of the network.
        WrongTVMError: the installed TVM has no ``auto_scheduler``.
    """
    log, folder = Path(log), Path(folder)
    check_folder(folder)
    scheduler = package("auto-scheduler")
    problems: list[Problem] = []
    groups = _by_workload(log, problems)
    progress(Step("extracting the network's tasks"))
    made = scheduler.SCHEDULER.network(network, shapes=shapes)
    tasks = scheduler.SCHEDULER.tasks(made, scheduler.SCHEDULER.target(hardware))
    progress(Step(f"matching {len(groups)} tasks of the log"))
    candidates = {key: [task for task in tasks if _sizes(task.key) == _sizes(key)] for key in groups}
    pairs = [(task, key) for key, tasks_of_key in candidates.items() for task in tasks_of_key]
    fit = dict(zip(pairs, scheduler.count_applicable([(task, groups[key]) for task, key in pairs], jobs), strict=True))
    matched: list[tuple[Task, Sequence[RecordLine]]] = []
    for key, lines in groups.items():
        best = max((fit[task, key] for task in candidates[key]), default=0)
        chosen = [task for task in candidates[key] if best and fit[task, key] == best]
        if len(chosen) == 1:
            matched.append((chosen[0], lines))
        else:
            problems.append(Problem(log, lines[0].line, _why_not(made.name, key, candidates[key], chosen)))
    if not matched:
        listed = "".join(f"\nleft out: {problem}" for problem in problems[:20])
        raise InputError(f"no record of {log} matches a task of {made.name}{listed}")
    scheduler.save_tasks(folder, [(made.name, tasks)])
    records = folder / "measure_records" / hardware
    written = sum(_write(record_file(records, task.key), task, lines) for task, lines in matched)
    return ImportLogResult(folder, written, len({task.key for task, _ in matched}), len(tasks), tuple(problems))


def _by_workload(log: Path, problems: list[Problem]) -> dict[str, list[RecordLine]]:
    """The records of each workload key.

    Raises:
        InputError: the log has no record.
    """
    groups: dict[str, list[RecordLine]] = {}
    for line in record_lines(log):
        try:
            groups.setdefault(parse_record(line).workload_key, []).append(line)
        except InputError as error:
            problems.append(Problem(log, line.line, str(error)))
    if not groups:
        why = f"; {problems[0]}" if problems else ""
        raise InputError(f"{log} has no measure record of auto_scheduler{why}")
    return groups


def _sizes(workload_key: str) -> list[int] | None:
    """The flat list of a task's tensor sizes from its key; older keys do not nest them.

    >>> _sizes('["4d0b", [1, 8], [8]]') == _sizes('["92a1", 1, 8, 8]') == [1, 8, 8]
    True
    """
    try:
        _, *shapes = parse_json(workload_key)
    except (TypeError, ValueError):
        return None
    flat: list[int] = []
    for size in shapes:
        flat += size if isinstance(size, list) else [size]
    return flat


def _why_not(network: str, key: str, candidates: Sequence[Task], chosen: Sequence[Task]) -> str:
    if chosen:
        return f"its programs apply to several tasks of {network}: {', '.join(task.name for task in chosen)}"
    if candidates:
        return f"its programs apply to no task of {network} with its shapes {_sizes(key)}"
    return f"no task of {network} has tensors of its shapes {_sizes(key)}"


def _write(path: Path, task: Task, lines: Sequence[RecordLine]) -> int:
    """Adds the lines that are missing in a file, with the task's key; returns their number."""
    there = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    new = []
    for line in lines:
        entry = json.loads(line.text)
        entry["i"][0][0] = task.key
        new.append(json.dumps(entry))
    new = [text for text in dict.fromkeys(new) if text not in there]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "".join(f"{text}\n" for text in (*there, *new)))
    return len(new)
