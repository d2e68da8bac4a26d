from __future__ import annotations

import getpass
import json
import os
import platform
from pathlib import Path

import psutil
import pytest

from tvm_gnn_cost.measuring.machine import describe_machine


def test_the_machine_is_described() -> None:
    found = describe_machine()
    assert list(found) == ["processor", "cores", "threads", "memory_gib", "system", "python"]
    assert found["processor"]
    assert found["threads"] == os.cpu_count()
    assert abs(found["memory_gib"] - psutil.virtual_memory().total / 2**30) <= 0.5
    assert found["python"] == platform.python_version()
    assert json.loads(json.dumps(found)) == found


def test_nothing_names_the_machine_or_its_user() -> None:
    found = json.dumps(describe_machine())
    names = {platform.node(), getpass.getuser(), str(Path.home())}
    assert not [name for name in names if len(name) > 3 and name in found]


def test_the_first_model_name_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "processor\t: 0\nmodel name\t: AMD EPYC: 7763 64-Core\nprocessor\t: 1\nmodel name\t: other\n"
    monkeypatch.setattr(Path, "read_text", lambda _self: text)
    assert describe_machine()["processor"] == "AMD EPYC: 7763 64-Core"


@pytest.mark.parametrize("cpuinfo", [None, "processor\t: 0\nCPU part\t: 0xd40\n"])
def test_a_processor_without_a_model_name_is_called_what_the_system_calls_it(
    monkeypatch: pytest.MonkeyPatch, cpuinfo: str | None
) -> None:
    monkeypatch.setattr(Path, "exists", lambda _self: cpuinfo is not None)
    monkeypatch.setattr(Path, "read_text", lambda _self: cpuinfo)
    monkeypatch.setattr(platform, "processor", lambda: "")
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    assert describe_machine()["processor"] == "aarch64"
