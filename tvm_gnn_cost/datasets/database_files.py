"""The files of a MetaSchedule database."""

from __future__ import annotations

from pathlib import Path

from tvm_gnn_cost.datasets.json_lines import find_file

WORKLOADS, RECORDS = "database_workload.json", "database_tuning_record.json"


def is_database(folder: Path) -> bool:
    """Whether a folder holds a MetaSchedule database, plain or compressed."""
    return find_file(folder, WORKLOADS) is not None
