"""TVM's auto-schedulers behind the protocols of ``scheduler.py``."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from tvm_gnn_cost.datasets.records import is_database
from tvm_gnn_cost.datasets.tenset import is_tenset
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.installed import has, require_tvm
from tvm_gnn_cost.schedulers.scheduler import Scheduler

#: Scheduler -> its package in this folder, and the subpackage of TVM that it needs. The first is the default.
_PACKAGES = {"meta-schedule": ("meta_schedule", "s_tir"), "auto-scheduler": ("auto_scheduler", "auto_scheduler")}

NAMES = tuple(_PACKAGES)


def scheduler(name: str | None = None) -> Scheduler:
    """The scheduler with this name; by default the scheduler of the installed TVM.

    Raises:
        InputError: there is no such scheduler.
        WrongTVMError: the installed TVM lacks it, or there is no TVM.
    """
    chosen: Scheduler = package(name).SCHEDULER
    return chosen


def installed_name() -> str:
    """The name of the installed TVM's scheduler; ``meta-schedule`` without TVM."""
    return next((name for name, (_, part) in _PACKAGES.items() if has(part)), NAMES[0])


def holds_records(folder: Path) -> bool:
    """Whether a folder holds measure records that a scheduler reads: TenSet's layout or a MetaSchedule database."""
    return is_tenset(folder) or is_database(folder)


def scheduler_of(folder: Path) -> Scheduler:
    """The scheduler that reads the records of a folder.

    It is ``auto-scheduler`` for TenSet's layout, else ``meta-schedule``. With a TVM of 0.14 to 0.19,
    ``auto-scheduler`` reads the databases of such a TVM too.

    Raises:
        WrongTVMError: the installed TVM lacks it, or there is no TVM.
    """
    with_old_tvm = has("auto_scheduler") and has("meta_schedule")
    return scheduler("auto-scheduler" if is_tenset(folder) or with_old_tvm else "meta-schedule")


def package(name: str | None = None) -> Any:
    """The Python package of a scheduler.

    It has ``SCHEDULER``, ``GNNCostModel``, ``XGBBaseline`` (TVM's XGBoost model, trained offline) and
    ``load_library``.

    Raises:
        InputError: there is no such scheduler.
        WrongTVMError: the installed TVM lacks it, or there is no TVM.
    """
    name = name or installed_name()
    if name not in _PACKAGES:
        raise InputError(f"unknown scheduler '{name}'; one of: {', '.join(NAMES)}")
    module, part = _PACKAGES[name]
    require_tvm(part)
    return import_module(f"tvm_gnn_cost.schedulers.{module}")
