"""Schedulers by name and by folder."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tvm_gnn_cost
from tvm_gnn_cost.errors import InputError, WrongTVMError
from tvm_gnn_cost.schedulers import NAMES, package, scheduler, scheduler_of


def other() -> str:
    """The scheduler that the installed TVM does not have."""
    (name,) = set(NAMES) - {scheduler().name}
    return name


@pytest.mark.needs("tvm")
def test_the_scheduler_of_the_installed_tvm_is_the_default() -> None:
    assert scheduler().name in NAMES
    assert scheduler(scheduler().name) is scheduler()


@pytest.mark.needs("tvm")
def test_the_other_scheduler_needs_the_other_tvm() -> None:
    for call in (scheduler, package):
        with pytest.raises(WrongTVMError, match=r"this needs .*; found "):
            call(other())


def test_an_unknown_scheduler_is_named() -> None:
    for call in (scheduler, package):
        with pytest.raises(InputError, match="unknown scheduler 'ansor'; one of: meta-schedule, auto-scheduler"):
            call("ansor")


@pytest.mark.needs("tvm")
def test_a_folder_tells_its_scheduler(tmp_path: Path) -> None:
    (tmp_path / "tenset" / "network_info").mkdir(parents=True)
    (tmp_path / "database").mkdir()
    folders = {"auto-scheduler": tmp_path / "tenset", "meta-schedule": tmp_path / "database"}
    assert scheduler_of(folders[scheduler().name]) is scheduler()
    if scheduler().name == "auto-scheduler":
        # Such a TVM reads the databases of its own MetaSchedule.
        assert scheduler_of(folders["meta-schedule"]) is scheduler()
    else:
        with pytest.raises(WrongTVMError):
            scheduler_of(folders[other()])


@pytest.mark.needs("tvm")
def test_worker_processes_load_no_model() -> None:
    module = {"meta-schedule": "meta_schedule.builder", "auto-scheduler": "auto_scheduler.folder"}[scheduler().name]
    code = (
        f"import sys, tvm_gnn_cost.schedulers.{module};"
        "assert not {'torch_geometric', 'lightning', 'tvm_gnn_cost.models'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.needs("tvm")
def test_a_name_that_a_package_does_not_have() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'nosuch'"):
        package().nosuch  # noqa: B018
    assert set(package().__all__) == set(package()._HOMES)


@pytest.mark.needs("tvm")
def test_the_front_doors_names_are_those_of_the_package() -> None:
    assert tvm_gnn_cost.GNNCostModel is package().GNNCostModel
    assert tvm_gnn_cost.XGBBaseline is package().XGBBaseline


def test_without_tvm_one_sentence_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tvm", None)
    for name in (None, *NAMES):
        with pytest.raises(WrongTVMError, match="found no TVM at all"):
            scheduler(name)
