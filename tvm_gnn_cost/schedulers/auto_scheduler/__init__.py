"""``auto_scheduler`` (Ansor), the auto-scheduler of a TVM up to 0.19, with which TenSet was measured.

``GNNCostModel`` is the ``program_cost_model`` argument of its ``SketchPolicy``. ``tvm_gnn_cost.GNNCostModel`` is the
same class, and fails with one sentence if this TVM is missing.

Names are loaded on first use, so that worker processes, which use none of them, start quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvm_gnn_cost.schedulers.auto_scheduler.compile import load_library
    from tvm_gnn_cost.schedulers.auto_scheduler.cost_model import GNNCostModel, make_policies
    from tvm_gnn_cost.schedulers.auto_scheduler.records import count_applicable
    from tvm_gnn_cost.schedulers.auto_scheduler.scheduler import SCHEDULER, AutoScheduler
    from tvm_gnn_cost.schedulers.auto_scheduler.task_files import save_tasks
    from tvm_gnn_cost.schedulers.auto_scheduler.xgb_baseline import XGBBaseline

__all__ = [
    "SCHEDULER",
    "AutoScheduler",
    "GNNCostModel",
    "XGBBaseline",
    "count_applicable",
    "load_library",
    "make_policies",
    "save_tasks",
]

_HOMES = {
    "SCHEDULER": "scheduler",
    "AutoScheduler": "scheduler",
    "XGBBaseline": "xgb_baseline",
    "GNNCostModel": "cost_model",
    "count_applicable": "records",
    "load_library": "compile",
    "make_policies": "cost_model",
    "save_tasks": "task_files",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
