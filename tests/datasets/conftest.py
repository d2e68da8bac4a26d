"""The fixtures of the tests that need today's TVM."""

from __future__ import annotations

from tests.conftest import HAS_AUTO_SCHEDULER

if not HAS_AUTO_SCHEDULER:
    from .small_database import database, graph_store  # noqa: F401
