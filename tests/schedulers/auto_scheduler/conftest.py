"""The fixtures of the tests that need a TVM with auto_scheduler; without it none of this folder is collected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tvm_gnn_cost.installed import has

if not has("auto_scheduler"):
    collect_ignore_glob = ["*"]


@pytest.fixture(scope="session")
def build_pool() -> Any:
    """The scheduler's own worker processes, so that they start once."""
    from tvm_gnn_cost.schedulers.auto_scheduler import SCHEDULER

    return SCHEDULER.build_pool


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A folder with the first eight records of five of the project's tasks."""
    from tests.schedulers.auto_scheduler.small_tasks import RECORDS, copy_records

    folder = tmp_path / "data"
    copy_records(folder, sorted(RECORDS.glob("*.json"))[::20], 8)
    return folder
