from __future__ import annotations

import importlib
import inspect
import sys

import pytest
from tvm.tirx.script.parser import entry

from tvm_gnn_cost.schedulers.meta_schedule.preload import import_tensor_intrin

NAME = "tvm.s_tir.tensor_intrin"


def test_only_the_script_parser_sees_another_inspect_and_only_during_the_import(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    original = inspect.getmodule, inspect.stack
    calls = []

    def fail(name: str) -> None:
        assert name == NAME
        assert (inspect.getmodule, inspect.stack) == original
        frame = entry.inspect.stack()[0]
        calls.append((frame.function, frame.code_context))
        assert entry.inspect.isfunction is inspect.isfunction
        raise ImportError("no intrinsics")

    monkeypatch.delitem(sys.modules, NAME, raising=False)
    monkeypatch.setattr(importlib, "import_module", fail)
    with pytest.raises(ImportError, match="no intrinsics"):
        import_tensor_intrin()
    assert calls == [("fail", None)]
    assert entry.inspect is inspect


def test_the_intrinsics_are_imported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import_tensor_intrin()
    assert NAME in sys.modules
    assert entry.inspect is inspect
    monkeypatch.setattr(importlib, "import_module", None)
    import_tensor_intrin()
