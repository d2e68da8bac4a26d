"""Imports TVM's tensor intrinsics in seconds instead of a minute."""

from __future__ import annotations

import importlib
import inspect
import sys
from types import ModuleType


def import_tensor_intrin() -> None:
    """Imports ``tvm.s_tir.tensor_intrin``, which every ``TuneContext`` needs, before TVM does it the slow way.

    Its 248 intrinsics are parsed from their sources, and for each stack frame of each of them
    ``inspect.getmodule`` looks through every module that is loaded: beside torch that took 30 to 90 seconds. Here it
    looks at the object's own ``__module__`` alone while that import runs, which gives 4 seconds.
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
