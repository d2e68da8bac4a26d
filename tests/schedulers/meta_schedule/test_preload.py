from __future__ import annotations

import importlib
import inspect
import sys

import pytest

from tvm_gnn_cost.schedulers.meta_schedule.preload import import_tensor_intrin

NAME = "tvm.s_tir.tensor_intrin"


def test_the_intrinsics_are_there_and_inspect_is_as_before() -> None:
    original = inspect.getmodule
    import_tensor_intrin()
    assert NAME in sys.modules
    assert inspect.getmodule is original


def test_inspect_is_as_before_even_if_the_import_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    original = inspect.getmodule
    found = []

    def fail(name: str) -> None:
        assert name == NAME
        assert inspect.getmodule is not original
        found.append(inspect.getmodule(import_tensor_intrin))
        raise ImportError("no intrinsics")

    monkeypatch.delitem(sys.modules, NAME, raising=False)
    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(ImportError, match="no intrinsics"):
        import_tensor_intrin()
    assert inspect.getmodule is original
    assert found == [sys.modules[import_tensor_intrin.__module__]]


def test_they_are_imported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import_tensor_intrin()
    monkeypatch.setattr(importlib, "import_module", None)
    import_tensor_intrin()
