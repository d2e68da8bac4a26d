from __future__ import annotations

import os

import psutil
import pytest

from tvm_gnn_cost.schedulers.auto_scheduler.target import local_target


def test_the_physical_cores() -> None:
    target = local_target()
    assert str(target.kind) == "llvm"
    assert int(target.attrs["num-cores"]) == (psutil.cpu_count(logical=False) or os.cpu_count())


def test_the_target_has_a_number_of_cores_on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("psutil.cpu_count", lambda **_: None)
    assert int(local_target().attrs["num-cores"]) == os.cpu_count()


def test_a_name_for_the_machine() -> None:
    assert local_target("e5").model == "e5"
    assert str(local_target("e5")).replace(" -model=e5", "") == str(local_target())
