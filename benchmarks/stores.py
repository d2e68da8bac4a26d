"""Graph stores of the measured programs that come with the project."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.progress import Progress, TaskID

from common import console
from tvm_gnn_cost import extract
from tvm_gnn_cost.datasets.database_files import RECORDS, WORKLOADS
from tvm_gnn_cost.datasets.held_out import TEST_NETWORKS
from tvm_gnn_cost.datasets.json_lines import find_file, open_file
from tvm_gnn_cost.datasets.tenset import files_ending, is_tenset
from tvm_gnn_cost.graphs.program_graph import Detail
from tvm_gnn_cost.progress import Advanced, Event

#: What a quick run takes of a database: about so many tasks, beside one of each test network.
_QUICK_TASKS = 4
#: What a quick run takes of a folder in TenSet's layout: one file of records in so many, with every test network left.
_QUICK_FILES = 40


def extract_store(data: Sequence[Path], stores: Path, detail: Detail) -> Path:
    """A store of all measured programs of some folders; made at the first call, which takes minutes."""
    store = stores / f"{'+'.join(one.name for one in data)}-{detail}"
    for one in data:
        with Progress(console=console, transient=True) as progress:
            bar = progress.add_task(f"extracting {one.name} ({detail})", total=None)

            def show(event: Event, progress: Progress = progress, bar: TaskID = bar) -> None:
                if isinstance(event, Advanced):
                    progress.update(bar, completed=event.done, total=event.total)

            # A task's throughput is relative to its best on the same machine.
            for hardware in _machines(one) if is_tenset(one) else [None]:
                extract(one, store, detail=detail, hardware=hardware, progress=show)
    return store


def measured_on(data: Sequence[Path]) -> list[Any]:
    """The machine that each folder was measured on; in TenSet's layout, the names of several."""
    return [
        _machines(one) if is_tenset(one) else json.loads((one / "card.json").read_text())["machine"] for one in data
    ]


def thin_out(data: Sequence[Path], folder: Path) -> list[Path]:
    """New folders below one, each with a few of the measured programs of another, for a quick run."""
    thin = [folder / one.name for one in data]
    for one, few in zip(data, thin, strict=True):
        few.mkdir(parents=True)
        (_thin_out_tenset if is_tenset(one) else _thin_out_database)(one, few)
    return thin


def _machines(data: Path) -> list[str]:
    return sorted(path.name for path in (data / "measure_records").iterdir())


def _thin_out_tenset(data: Path, folder: Path) -> None:
    shutil.copytree(data / "network_info", folder / "network_info")
    for hardware in _machines(data):
        (folder / "measure_records" / hardware).mkdir(parents=True)
        for path in files_ending(data / "measure_records" / hardware, ".json")[::_QUICK_FILES]:
            shutil.copy(path, folder / "measure_records" / hardware)


def _thin_out_database(data: Path, folder: Path) -> None:
    for name in ("card.json", "tasks.jsonl", WORKLOADS):
        (folder / name).write_bytes(_content(data, name))
    sidecar = "measurements.jsonl"
    records, lines = (_content(data, name).splitlines(keepends=True) for name in (RECORDS, sidecar))
    measured = [json.loads(line)["task"] for line in lines]
    weights = {task["hash"]: task["weights"] for task in map(json.loads, _content(data, "tasks.jsonl").splitlines())}
    networks = TEST_NETWORKS["meta-schedule"]
    tasks = [task for task, programs in Counter(measured).items() if programs > 4]
    tested = [[task for task in tasks if network in weights[task]] for network in networks]
    others = [task for task in tasks if weights[task].keys().isdisjoint(networks)]
    few = {*others[:: max(1, len(others) // _QUICK_TASKS)], *(task for own in tested for task in own[:1])}
    kept = [i for i, task in enumerate(measured) if task in few]
    (folder / RECORDS).write_bytes(b"".join(records[i] for i in kept))
    (folder / sidecar).write_bytes(b"".join(lines[i] for i in kept))


def _content(data: Path, name: str) -> bytes:
    path = find_file(data, name)
    assert path is not None, f"{data} has no {name}"
    with open_file(path) as opened:
        return opened.read()
