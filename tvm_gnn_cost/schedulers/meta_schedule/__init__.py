"""MetaSchedule, the auto-scheduler of today's TVM.

``GNNCostModel`` is the ``cost_model`` argument of MetaSchedule's tuning functions. ``tvm_gnn_cost.GNNCostModel`` is the
same class, and fails with one sentence if TVM is missing. ``PooledBuilder`` is their ``builder`` argument, which reuses
its processes for all batches.

Names are loaded on first use, so that worker processes, which use none of them, start quickly.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tvm_gnn_cost.schedulers.meta_schedule.builder import PooledBuilder
    from tvm_gnn_cost.schedulers.meta_schedule.compile import load_library
    from tvm_gnn_cost.schedulers.meta_schedule.cost_model import GNNCostModel
    from tvm_gnn_cost.schedulers.meta_schedule.scheduler import SCHEDULER, MetaSchedule
    from tvm_gnn_cost.schedulers.meta_schedule.xgb_baseline import XGBBaseline

__all__ = [
    "SCHEDULER",
    "GNNCostModel",
    "MetaSchedule",
    "PooledBuilder",
    "XGBBaseline",
    "load_library",
]

_HOMES = {
    "SCHEDULER": "scheduler",
    "GNNCostModel": "cost_model",
    "MetaSchedule": "scheduler",
    "XGBBaseline": "xgb_baseline",
    "PooledBuilder": "builder",
    "load_library": "compile",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
