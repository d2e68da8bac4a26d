"""Accuracy on networks that no model was trained on: graph models against TVM's XGBoost and trivial baselines.

Each model is trained on the training networks and operators of the data set that comes with the project, once a
seed; a seed also draws the validation tasks. Every model sees the same programs.
"""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import Any

from accuracy_runs import Subject, main
from common import DATA
from tvm_gnn_cost.datasets.extract import extract_collection
from tvm_gnn_cost.networks.catalogue import HELD_OUT

#: The quick run takes the programs of one workload in so many.
QUICK_EVERY = 20


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


def measured_on(data: Path) -> Any:
    """The machine."""
    return json.loads((data / "card.json").read_text())["machine"]


SUBJECT = Subject("accuracy", DATA, extract_collection, thin_out, HELD_OUT, measured_on)

if __name__ == "__main__":
    main(__doc__, SUBJECT)
