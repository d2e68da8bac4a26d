"""Finds the tasks of a MetaSchedule collection whose repeated measurements disagree."""

from __future__ import annotations

import os
import statistics
from collections import defaultdict
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from tvm_gnn_cost.datasets.records import DAMAGED, RECORDS, find_file, open_file, parsed_objects, unpack
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import parse_json, replacing

#: Both have a line for each program, in the same order.
_FILES = (RECORDS, "measurements.jsonl")


@dataclass(frozen=True)
class CheckDataResult:
    """The result of :func:`check_data`.

    Attributes:
        tasks: Number of tasks with repeated measurements.
        noisy: Name and coefficient of variation of each task above the limit, the largest first.
        dropped: Number of programs that were removed.
    """

    tasks: int
    noisy: list[tuple[str, float]]
    dropped: int


def check_data(folder: str | os.PathLike[str], limit: float = 0.1, *, drop: bool = False) -> CheckDataResult:
    """Lists the tasks of a MetaSchedule collection whose repeats disagree, because another process ran meanwhile.

    The measure is the coefficient of variation of a program's repeats, and of a task the median over its programs;
    nothing that a model reads or predicts is used.

    Args:
        folder: What ``collect`` wrote, plain or compressed.
        limit: Coefficient of variation above which a task counts; the median task has 0.01 to 0.03.
        drop: Whether to remove the programs of these tasks, so that ``collect`` measures them again.

    Raises:
        InputError: the folder is not such a collection, or a line of it cannot be read.

    >>> check_data(records, limit=100).noisy
    []
    """
    folder = Path(folder)
    repeats: defaultdict[str, list[float]] = defaultdict(list)
    for _, task, seconds in _programs(folder):
        if len(seconds) > 1 and min(seconds) > 0:  # failed programs have one
            repeats[task].append(statistics.pstdev(seconds) / statistics.mean(seconds))
    variation = {task: statistics.median(values) for task, values in repeats.items()}
    noisy = {task: value for task, value in variation.items() if value > limit}
    dropped = _drop(folder, noisy) if drop and noisy else 0
    known = parsed_objects(_path(folder, "tasks.jsonl"), [])
    names = {str(task.get("hash")): str(task.get("name")) for _, task in known}
    ordered = sorted(noisy.items(), key=lambda item: -item[1])
    return CheckDataResult(len(variation), [(names.get(task, task), value) for task, value in ordered], dropped)


def _drop(folder: Path, tasks: Collection[str]) -> int:
    """Removes the programs of some tasks and returns their number; unpacks compressed files, as ``collect`` does."""
    unpack(folder, _FILES)
    dropped = 0
    with ExitStack() as stack:
        kept = [stack.enter_context(stack.enter_context(replacing(folder / name)).open("wb")) for name in _FILES]
        for lines, task, _ in _programs(folder):
            if task in tasks:
                dropped += 1
                continue
            for file, line in zip(kept, lines, strict=True):
                file.write(line)
    return dropped


def _path(folder: Path, name: str) -> Path:
    path = find_file(folder, name)
    if path is None:
        raise InputError(f"{folder} has no {name}; expected a folder that 'collect' wrote with MetaSchedule")
    return path


def _programs(folder: Path) -> Iterator[tuple[tuple[bytes, bytes], str, list[float]]]:
    """Yields the two lines of each program, the hash of its task and the seconds of its repeats."""
    paths = [_path(folder, name) for name in _FILES]
    with open_file(paths[0]) as records, open_file(paths[1]) as measurements:
        try:
            for number, lines in enumerate(zip_longest(records, measurements, fillvalue=b""), 1):
                try:
                    _, (_, seconds, *_) = parse_json(lines[0])
                    yield lines, str(parse_json(lines[1])["task"]), [float(second) for second in seconds]
                except (ValueError, TypeError, KeyError) as error:
                    where = f"line {number} of {paths[0]} and {paths[1].name}"
                    raise InputError(f"{where} is not a program and its measurement; remove it from both") from error
        except DAMAGED as error:
            raise InputError(f"{folder}: a compressed file is cut off or damaged ({error}); get it again") from error
