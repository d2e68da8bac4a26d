"""The fixtures of the tests that need today's TVM; without it none of this folder is collected."""

from __future__ import annotations

from typing import Any

import pytest

from tvm_gnn_cost.installed import has

if not has("s_tir"):
    collect_ignore_glob = ["*"]


@pytest.fixture(scope="session")
def build_pool() -> Any:
    """The scheduler's own worker processes, so that they start once."""
    from tvm_gnn_cost.schedulers.meta_schedule import SCHEDULER

    return SCHEDULER.build_pool
