"""TVM's auto-schedulers behind one protocol; no other package imports TVM."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from tvm_gnn_cost.datasets.tenset import is_tenset
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.installed import has, require_tvm
from tvm_gnn_cost.schedulers.scheduler import Scheduler

#: Scheduler -> its package in this folder, and the subpackage of TVM that it needs.
_PACKAGES = {"meta-schedule": ("meta_schedule", "s_tir"), "auto-scheduler": ("auto_scheduler", "auto_scheduler")}

NAMES = tuple(_PACKAGES)


def scheduler(name: str | None = None) -> Scheduler:
    """The scheduler of that name; by default the one that the installed TVM has.

    Raises:
        InputError: there is no such scheduler.
        WrongTVM: the installed TVM lacks it, or there is no TVM.
    """
    found: Scheduler = package(name).SCHEDULER
    return found


def scheduler_of(folder: Path) -> Scheduler:
    """The scheduler that reads the records of a folder.

    It is ``auto-scheduler`` for TenSet's layout, else ``meta-schedule``. The databases of a TVM of 0.14 to 0.19 are
    read by such a TVM, where ``auto-scheduler`` does it.

    Raises:
        WrongTVM: the installed TVM lacks it, or there is no TVM.
    """
    with_old_tvm = has("auto_scheduler") and has("meta_schedule")
    return scheduler("auto-scheduler" if is_tenset(folder) or with_old_tvm else "meta-schedule")


def package(name: str | None = None) -> Any:
    """The Python package of a scheduler, which has ``GNNCostModel`` and ``load_library``.

    Raises:
        InputError: there is no such scheduler.
        WrongTVM: the installed TVM lacks it, or there is no TVM.
    """
    if name is None:
        name = "auto-scheduler" if has("auto_scheduler") else "meta-schedule"
    if name not in _PACKAGES:
        raise InputError(f"unknown scheduler '{name}'; one of: {', '.join(NAMES)}")
    module, part = _PACKAGES[name]
    require_tvm(part)
    return import_module(f"tvm_gnn_cost.schedulers.{module}")
