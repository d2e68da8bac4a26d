"""Accuracy on networks that no model was trained on, from records in TenSet's layout: graph models against Ansor's XGB.

Each model is trained on the training networks and operators of the data set, once a seed; a seed also draws the
validation tasks. Every model sees the same programs. Runs in the environment of ``make ansor``.
"""

from __future__ import annotations

import shutil
import tempfile
from functools import partial
from pathlib import Path

from rich.progress import Progress

from accuracy_runs import Bar, benchmark, options
from common import TENSET, WORK, console
from tvm_gnn_cost.datasets.extract_tenset import extract_tenset
from tvm_gnn_cost.datasets.store import GraphStore
from tvm_gnn_cost.graphs.program_graph import Detail
from tvm_gnn_cost.networks.catalogue import TENSET_HELD_OUT

#: The quick run takes one file of records in so many.
QUICK_EVERY = 10


def extract_store(data: Path, stores: Path, detail: Detail) -> Path:
    """A store of the data set's programs; made at the first call, which takes a minute or two."""
    folder = stores / f"{data.name}-{detail}"
    with Progress(console=console, transient=True) as progress:
        bar = Bar(progress, f"extracting {data.name} ({detail})")
        extract_tenset(data, GraphStore(folder), detail=detail, progress=bar)
    return folder


def thin_out(data: Path, folder: Path) -> Path:
    """A copy of the data set with few of its files of records, for the quick run."""
    shutil.copytree(data / "network_info", folder / "network_info")
    for hardware in (data / "measure_records").iterdir():
        (folder / "measure_records" / hardware.name).mkdir(parents=True)
        for path in sorted(hardware.glob("*.json"))[::QUICK_EVERY]:
            shutil.copy(path, folder / "measure_records" / hardware.name / path.name)
    return folder


def main() -> None:
    """Reads the options."""
    arguments = options(__doc__, TENSET, WORK / "tenset-accuracy").parse_args()
    measured_on = [path.name for path in (arguments.data / "measure_records").iterdir()]
    if not arguments.quick:
        stores = partial(extract_store, arguments.data, WORK)
        benchmark("tenset_accuracy", arguments, stores, TENSET_HELD_OUT, measured_on, arguments.runs)
        return
    with tempfile.TemporaryDirectory() as folder:
        stores = partial(extract_store, thin_out(arguments.data, Path(folder) / "thin"), Path(folder))
        benchmark("tenset_accuracy", arguments, stores, TENSET_HELD_OUT, measured_on, Path(folder) / "runs")


if __name__ == "__main__":
    main()
