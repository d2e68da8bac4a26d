"""Two environments run the tests: today's TVM those of MetaSchedule and all that need no TVM, and the TVM that has
``auto_scheduler`` (``make ansor``) those that are named after what needs it."""

from __future__ import annotations

from pathlib import Path

from tvm_gnn_cost.which_tvm import has

HAS_AUTO_SCHEDULER = has("auto_scheduler")
_NAMES = ("auto_scheduler", "legacy", "tenset")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leaves out the files of the other environment."""
    if collection_path.suffix != ".py":
        return None
    needs_it = any(name in collection_path.name for name in _NAMES)
    return None if needs_it == HAS_AUTO_SCHEDULER else True
