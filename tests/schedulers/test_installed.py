"""With made-up TVMs: only their folders count."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tvm_gnn_cost.errors import WorkError, WrongTVM
from tvm_gnn_cost.schedulers.installed import has, require_tvm


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, *parts: str) -> None:
    """A package ``tvm`` with these subpackages, before all others on the path."""
    for part in parts:
        (folder / "tvm" / part).mkdir(parents=True)
    (folder / "tvm" / "__init__.py").write_text("raise AssertionError('TVM is not to be imported')")
    monkeypatch.delitem(sys.modules, "tvm", raising=False)
    monkeypatch.syspath_prepend(folder)


def test_todays_tvm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, tmp_path, "s_tir", "relax")
    assert has("s_tir")
    assert not has("auto_scheduler")
    require_tvm("s_tir")
    with pytest.raises(WrongTVM, match=rf"needs a TVM with auto_scheduler.*`make auto-scheduler`.*{tmp_path}/tvm"):
        require_tvm("auto_scheduler")


def test_an_earlier_tvm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(monkeypatch, tmp_path, "auto_scheduler", "relay")
    assert has("auto_scheduler")
    require_tvm("auto_scheduler")
    with pytest.raises(WrongTVM, match=rf"needs today's TVM.*pip install.*{tmp_path}/tvm"):
        require_tvm("s_tir")


def test_no_tvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tvm", None)
    for part in ("s_tir", "auto_scheduler"):
        assert not has(part)
        with pytest.raises(WrongTVM, match="found no TVM at all") as error:
            require_tvm(part)
        assert isinstance(error.value, WorkError | ImportError)


def test_looking_imports_neither_tvm_nor_torch() -> None:
    code = (
        "import sys; from tvm_gnn_cost.schedulers.installed import has; has('s_tir');"
        "assert not {'tvm', 'torch'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
