from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

import pytest
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.builder import local_builder
from tvm.tirx.script.parser import entry

from tests.schedulers.meta_schedule.programs import good
from tvm_gnn_cost import GNNCostModel
from tvm_gnn_cost.schedulers.meta_schedule import preload
from tvm_gnn_cost.schedulers.meta_schedule.preload import build_in_worker, import_tensor_intrin

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


def test_workers_of_the_builder_import_the_intrinsics_before_they_build(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def build(*arguments: Any) -> str:
        calls.append(arguments)
        return "path"

    monkeypatch.setattr(preload, "import_tensor_intrin", lambda: calls.append("import"))
    monkeypatch.setattr(local_builder, "_worker_func", build)
    assert build_in_worker(1, 2) == "path"
    assert calls == ["import", (1, 2)]


def test_a_search_with_the_model_loses_no_program_to_the_import(monkeypatch: pytest.MonkeyPatch, target: Any) -> None:
    # Restores TVM's function, which it must have.
    monkeypatch.setattr(local_builder, "_worker_func", local_builder._worker_func)
    GNNCostModel()
    assert local_builder._worker_func is build_in_worker
    builder = ms.builder.LocalBuilder(max_workers=1)
    (built,) = builder.build([ms.builder.BuilderInput(good().sch.mod, target)])
    assert built.error_msg is None
    assert Path(built.artifact_path).is_file()
