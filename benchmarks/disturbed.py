"""Lists the tasks of a MetaSchedule collection whose repeats disagree: something else ran while they were measured.

The measure is the coefficient of variation of a program's repeats, of which the median over the task's programs counts;
nothing that a model reads or predicts is looked at. ``--drop`` removes the programs of these tasks from the files, and
the same ``tvm-gnn-cost collect`` measures them again.
"""

from __future__ import annotations

import json
import lzma
import statistics
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, cast

from rich.table import Table

from common import DATA, console, parser, write_result
from tvm_gnn_cost.datasets.database_files import RECORDS
from tvm_gnn_cost.datasets.json_lines import find_file, open_file
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import replacing

#: A line for each program in both, in the same order.
FILES = (RECORDS, "measurements.jsonl")
#: Above this coefficient of variation, the repeats of a task disagree. The median task has .01 to .03.
LIMIT = 0.1


def found(folder: Path, name: str) -> Path:
    """One of the collection's files.

    Raises:
        InputError: there is none.
    """
    path = find_file(folder, name)
    if path is None:
        raise InputError(f"{folder} has no {name}: it is no collection of MetaSchedule's programs")
    return path


def lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, plain or compressed."""
    with open_file(path) as opened:
        yield from opened


def variation(folder: Path) -> dict[str, float]:
    """Task's hash -> the median coefficient of variation of the repeats of those of its programs that ran."""
    by_task: dict[str, list[float]] = {}
    for record, measurement in zip(*(lines(found(folder, name)) for name in FILES), strict=True):
        _workload, (_trace, seconds, *_) = json.loads(record)
        if len(seconds) > 1:  # a failed program has one
            own = statistics.pstdev(seconds) / statistics.mean(seconds)
            by_task.setdefault(json.loads(measurement)["task"], []).append(own)
    return {task: statistics.median(values) for task, values in by_task.items()}


def to_write(path: Path, compressed: bool) -> IO[bytes]:
    """Opens a new file."""
    return cast(IO[bytes], lzma.open(path, "wb", preset=9 | lzma.PRESET_EXTREME)) if compressed else path.open("wb")


def drop(folder: Path, tasks: Collection[str]) -> int:
    """Removes the programs of some tasks from a collection and returns how many there were."""
    paths = [found(folder, name) for name in FILES]
    dropped = 0
    with ExitStack() as stack:
        unfinished = [stack.enter_context(replacing(path)) for path in paths]
        out = [
            stack.enter_context(to_write(new, path.suffix == ".xz"))
            for path, new in zip(paths, unfinished, strict=True)
        ]
        for record, measurement in zip(*map(lines, paths), strict=True):
            if json.loads(measurement)["task"] in tasks:
                dropped += 1
            else:
                out[0].write(record)
                out[1].write(measurement)
    return dropped


def main() -> None:
    """Prints the tasks, drops them if asked to and writes the JSON."""
    options = parser(__doc__)
    data = DATA["meta-schedule"][0]
    options.add_argument("--data", type=Path, default=data, help="what 'tvm-gnn-cost collect' wrote")
    options.add_argument("--limit", type=float, default=LIMIT, help="coefficient of variation above which to list")
    options.add_argument("--drop", action="store_true", help="remove the programs of these tasks")
    arguments = options.parse_args()
    of_each = variation(arguments.data)
    disturbed = {task: value for task, value in of_each.items() if value > arguments.limit}
    known = [json.loads(line) for line in lines(found(arguments.data, "tasks.jsonl"))]
    names = {task["hash"]: task["name"] for task in known}
    table = Table(title=f"{arguments.data.name}: tasks whose repeats disagree", title_justify="left")
    table.add_column("task")
    table.add_column("coefficient of variation", justify="right")
    for task, value in sorted(disturbed.items(), key=lambda item: -item[1]):
        table.add_row(names.get(task, task), f"{value:.2f}")
    console.print(table)
    metrics: dict[str, Any] = {"tasks": len(of_each), "disturbed": len(disturbed)}
    if arguments.drop:
        metrics["dropped_programs"] = drop(arguments.data, disturbed)
    console.print(", ".join(f"{name}: {value}" for name, value in metrics.items()))
    settings = {"data": arguments.data.name, "limit": arguments.limit, "quick": arguments.quick}
    write_result(arguments.json, "disturbed", settings, metrics)


if __name__ == "__main__":
    main()
