"""Accuracy on networks that no model was trained on: graph models against TVM's XGBoost and trivial baselines.

Each model is trained on the training networks and operators of the data set that comes with the project, once a
seed; a seed also draws the validation tasks. Every model sees the same programs.
"""

from __future__ import annotations

import gzip
import json
import shutil
import tempfile
from functools import partial
from pathlib import Path

from rich.progress import Progress

from accuracy_runs import Bar, benchmark, options
from common import DATA, WORK, console
from tvm_gnn_cost.datasets.extract import extract_collection
from tvm_gnn_cost.datasets.store import GraphStore
from tvm_gnn_cost.graphs.program_graph import Detail
from tvm_gnn_cost.networks.catalogue import HELD_OUT

#: The quick run takes the programs of one workload in so many.
QUICK_EVERY = 10


def extract_store(data: Path, stores: Path, detail: Detail) -> Path:
    """A store of the data set's programs; made at the first call, which takes a minute or two."""
    folder = stores / f"{data.name}-{detail}"
    with Progress(console=console, transient=True) as progress:
        bar = Bar(progress, f"extracting {data.name} ({detail})")
        extract_collection(data, GraphStore(folder), detail=detail, progress=bar)
    return folder


def thin_out(data: Path, folder: Path) -> Path:
    """A copy of a packed collection with few of its workloads' programs, for the quick run."""
    folder.mkdir()
    for name in ("card.json", "tasks.jsonl.gz", "database_workload.json.gz"):
        shutil.copy(data / name, folder / name)
    records, sidecar = "database_tuning_record.json.gz", "measurements.jsonl.gz"
    with (
        gzip.open(data / records) as record_lines,
        gzip.open(data / sidecar) as sidecar_lines,
        gzip.open(folder / records, "wb") as kept_records,
        gzip.open(folder / sidecar, "wb") as kept_sidecar,
    ):
        for record, line in zip(record_lines, sidecar_lines, strict=True):
            if json.loads(record)[0] % QUICK_EVERY == 0:
                kept_records.write(record)
                kept_sidecar.write(line)
    return folder


def main() -> None:
    """Reads the options."""
    arguments = options(__doc__, DATA, WORK / "accuracy").parse_args()
    measured_on = json.loads((arguments.data / "card.json").read_text())["machine"]
    if not arguments.quick:
        stores = partial(extract_store, arguments.data, WORK)
        benchmark("accuracy", arguments, stores, HELD_OUT, measured_on, arguments.runs)
        return
    with tempfile.TemporaryDirectory() as folder:
        stores = partial(extract_store, thin_out(arguments.data, Path(folder) / "thin"), Path(folder))
        benchmark("accuracy", arguments, stores, HELD_OUT, measured_on, Path(folder) / "runs")


if __name__ == "__main__":
    main()
