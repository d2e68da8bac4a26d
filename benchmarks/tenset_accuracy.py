"""Accuracy on networks that no model was trained on, from records in TenSet's layout: graph models against Ansor's XGB.

Each model is trained on the training networks and operators of the data set, once a seed; a seed also draws the
validation tasks. Every model sees the same programs. Runs in the environment of ``make ansor``.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from accuracy_runs import Subject, main
from common import TENSET
from tvm_gnn_cost.datasets.extract_tenset import extract_tenset
from tvm_gnn_cost.datasets.records import Progress
from tvm_gnn_cost.datasets.store import GraphStore
from tvm_gnn_cost.graphs.program_graph import Detail
from tvm_gnn_cost.networks.catalogue import TENSET_HELD_OUT

#: The quick run takes one file of records in so many.
QUICK_EVERY = 20


def thin_out(data: Path, folder: Path) -> Path:
    """A copy of the data set with few of its files of records, for the quick run."""
    shutil.copytree(data / "network_info", folder / "network_info")
    for hardware in (data / "measure_records").iterdir():
        (folder / "measure_records" / hardware.name).mkdir(parents=True)
        for path in sorted(hardware.glob("*.json"))[::QUICK_EVERY]:
            shutil.copy(path, folder / "measure_records" / hardware.name / path.name)
    return folder


def measured_on(data: Path) -> list[str]:
    """The folders of records."""
    return sorted(path.name for path in (data / "measure_records").iterdir())


def extract(data: Path, store: GraphStore, *, detail: Detail, progress: Progress) -> None:
    """The records of all machines; each normalises a task's throughput by its own best."""
    for hardware in measured_on(data):
        extract_tenset(data, store, hardware=hardware, detail=detail, progress=progress)


SUBJECT = Subject("tenset_accuracy", TENSET, extract, thin_out, TENSET_HELD_OUT, measured_on)

if __name__ == "__main__":
    main(__doc__, SUBJECT)
