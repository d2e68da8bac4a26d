"""Graph stores of the measured programs that come with the project."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from rich.progress import Progress

from common import console
from tvm_gnn_cost import extract
from tvm_gnn_cost.datasets.database_files import RECORDS, WORKLOADS
from tvm_gnn_cost.datasets.json_lines import find_file, open_file
from tvm_gnn_cost.datasets.tenset import is_tenset
from tvm_gnn_cost.graphs.program_graph import Detail
from tvm_gnn_cost.progress import Advanced, Event

#: Quick runs take the programs of one workload, or one file of records, in so many: few with every test network left.
_QUICK_WORKLOADS = 37
_QUICK_FILES = 40


def extract_store(data: Path, stores: Path, detail: Detail) -> Path:
    """A store of all measured programs of a folder; made at the first call, which takes a minute or two."""
    store = stores / f"{data.name}-{detail}"
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task(f"extracting {data.name} ({detail})", total=None)

        def show(event: Event) -> None:
            if isinstance(event, Advanced):
                progress.update(bar, completed=event.done, total=event.total)

        # A task's throughput is relative to its best on the same machine.
        for hardware in _machines(data) if is_tenset(data) else [None]:
            extract(data, store, detail=detail, hardware=hardware, progress=show)
    return store


def measured_on(data: Path) -> Any:
    """The machine that a folder was measured on; in TenSet's layout, the names of several."""
    return _machines(data) if is_tenset(data) else json.loads((data / "card.json").read_text())["machine"]


def thin_out(data: Path, folder: Path) -> Path:
    """A new folder with a few of the measured programs of another, for a quick run."""
    folder.mkdir()
    (_thin_out_tenset if is_tenset(data) else _thin_out_database)(data, folder)
    return folder


def _machines(data: Path) -> list[str]:
    return sorted(path.name for path in (data / "measure_records").iterdir())


def _thin_out_tenset(data: Path, folder: Path) -> None:
    shutil.copytree(data / "network_info", folder / "network_info")
    for hardware in _machines(data):
        (folder / "measure_records" / hardware).mkdir(parents=True)
        for path in sorted((data / "measure_records" / hardware).glob("*.json"))[::_QUICK_FILES]:
            shutil.copy(path, folder / "measure_records" / hardware)


def _thin_out_database(data: Path, folder: Path) -> None:
    for name in ("card.json", "tasks.jsonl", WORKLOADS):
        (folder / name).write_bytes(_content(data, name))
    sidecar = "measurements.jsonl"
    records, lines = (_content(data, name).splitlines(keepends=True) for name in (RECORDS, sidecar))
    kept = [i for i, record in enumerate(records) if json.loads(record)[0] % _QUICK_WORKLOADS == 0]
    (folder / RECORDS).write_bytes(b"".join(records[i] for i in kept))
    (folder / sidecar).write_bytes(b"".join(lines[i] for i in kept))


def _content(data: Path, name: str) -> bytes:
    path = find_file(data, name)
    assert path is not None, f"{data} has no {name}"
    with open_file(path) as opened:
        return opened.read()
