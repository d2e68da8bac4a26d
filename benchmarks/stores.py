"""Graph stores of the measured programs that come with the project."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.progress import Progress, TaskID

from common import DATA, HELD_OUT, console
from tvm_gnn_cost import GraphStore, extract
from tvm_gnn_cost.datasets.programs import MeasuredPrograms
from tvm_gnn_cost.datasets.records import RECORDS, WORKLOADS, find_file, open_file
from tvm_gnn_cost.datasets.split import networks_named
from tvm_gnn_cost.datasets.tenset import is_tenset, parse_record, record_files, record_lines
from tvm_gnn_cost.graphs.program_graph import Detail
from tvm_gnn_cost.progress import Advanced, Event
from tvm_gnn_cost.training.pipeline import split_programs

#: Approximate number of training tasks of a quick run; it also has one task of each held-out network.
_QUICK_TASKS = 4


def extract_store(data: Sequence[Path], stores: Path, detail: Detail) -> Path:
    """The store of all measured programs of the folders; the first call makes it, which takes minutes."""
    store = stores / f"{'+'.join(one.name for one in data)}-{detail}"
    for one in data:
        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task(f"extracting {one.name} ({detail})", total=None)

            def show(event: Event, progress: Progress = progress, bar: TaskID = bar) -> None:
                if isinstance(event, Advanced):
                    progress.update(bar, completed=event.done, total=event.total)

            # The throughput of a task is relative to its best program on the same machine.
            for hardware in _machines(one) if is_tenset(one) else [None]:
                extract(one, store, detail=detail, hardware=hardware, progress=show)
    return store


def measured_on(data: Sequence[Path]) -> list[Any]:
    """The machine of each folder; in TenSet's layout, the names of its machines."""
    return [
        _machines(one) if is_tenset(one) else json.loads((one / "card.json").read_text())["machine"] for one in data
    ]


def learned_from(scheduler: str, stores: Path) -> MeasuredPrograms:
    """The programs that a scheduler's shipped checkpoint learned from, with per-store features."""
    programs = GraphStore(extract_store(DATA[scheduler], stores, "statements")).load(with_features=True)
    parts = split_programs(programs, HELD_OUT[scheduler], 0)
    return programs.select(np.concatenate([parts.train, parts.validation]))


def thin_out(data: Sequence[Path], folder: Path) -> list[Path]:
    """Folders below one, each with a few of the measured programs of another, for a quick run; made if missing."""
    thin = [folder / source.name for source in data]
    for source, few in zip(data, thin, strict=True):
        if not few.exists():
            few.mkdir(parents=True)
            (_thin_out_tenset if is_tenset(source) else _thin_out_database)(source, few)
    return thin


def _machines(data: Path) -> list[str]:
    return sorted(path.name for path in (data / "measure_records").iterdir())


def _few_tasks(networks_of: Mapping[str, Collection[str]], tested: Sequence[str]) -> set[str]:
    """The tasks of a quick run, from the networks of each task of a machine."""
    others = [
        task for task, networks in networks_of.items() if not any(networks_named(one, networks) for one in tested)
    ]
    first = [
        next((task for task, networks in networks_of.items() if networks_named(one, networks)), None) for one in tested
    ]
    return {*others[:: max(1, len(others) // _QUICK_TASKS)], *(task for task in first if task is not None)}


def _thin_out_tenset(data: Path, folder: Path) -> None:
    # Only a TVM with auto_scheduler can read the tasks.
    from tvm_gnn_cost.schedulers.auto_scheduler.records import read_tenset

    shutil.copytree(data / "network_info", folder / "network_info")
    machines = _machines(data)
    weights = read_tenset(data, machines[0]).weights
    for hardware in machines:
        files = record_files(data / "measure_records", hardware)
        task_of = {file: parse_record(next(record_lines(file))).workload_key for file in files}
        networks_of = {task: weights.get(task, {}) for task in task_of.values()}
        few = _few_tasks(networks_of, HELD_OUT["auto-scheduler"])
        (folder / "measure_records" / hardware).mkdir(parents=True)
        for file, task in task_of.items():
            if task in few:
                shutil.copy(file, folder / "measure_records" / hardware)


def _thin_out_database(data: Path, folder: Path) -> None:
    for name in ("card.json", "tasks.jsonl", WORKLOADS):
        (folder / name).write_bytes(_content(data, name))
    sidecar = "measurements.jsonl"
    records, lines = (_content(data, name).splitlines(keepends=True) for name in (RECORDS, sidecar))
    measured = [json.loads(line)["task"] for line in lines]
    weights = {task["hash"]: task["weights"] for task in map(json.loads, _content(data, "tasks.jsonl").splitlines())}
    networks_of = {task: weights[task] for task, programs in Counter(measured).items() if programs > 4}
    few = _few_tasks(networks_of, HELD_OUT["meta-schedule"])
    kept = [i for i, task in enumerate(measured) if task in few]
    (folder / RECORDS).write_bytes(b"".join(records[i] for i in kept))
    (folder / sidecar).write_bytes(b"".join(lines[i] for i in kept))


def _content(data: Path, name: str) -> bytes:
    path = find_file(data, name)
    assert path is not None, f"{data} has no {name}"
    with open_file(path) as opened:
        return opened.read()
