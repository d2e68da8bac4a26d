"""Imports TVM's tensor intrinsics in seconds instead of a minute."""

from __future__ import annotations

import importlib
import inspect
import sys
from types import ModuleType


def import_tensor_intrin() -> None:
    """Imports ``tvm.s_tir.tensor_intrin``, which every ``TuneContext`` needs, faster than TVM would.

    TVM parses 248 intrinsics from their sources. For each of their stack frames ``inspect.getmodule`` searches all
    loaded modules, which takes 30 to 90 seconds when torch is loaded. During this import it only looks at the object's
    own ``__module__``, and the import takes 4 seconds.
    """
    if "tvm.s_tir.tensor_intrin" in sys.modules:
        return
    original = inspect.getmodule

    def own_module(object: object, _filename: str | None = None) -> ModuleType | None:
        return sys.modules.get(getattr(object, "__module__", None) or "")

    inspect.getmodule = own_module
    try:
        importlib.import_module("tvm.s_tir.tensor_intrin")
    finally:
        inspect.getmodule = original
