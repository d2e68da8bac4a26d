"""Imports TVM's tensor intrinsics in seconds instead of a minute, also where TVM's builder imports them."""

from __future__ import annotations

import importlib
import inspect
import sys
from types import FrameType, ModuleType
from typing import Any


class _WithoutSources(ModuleType):
    """The module ``inspect``, but its stack frames come without their source lines."""

    def __init__(self) -> None:
        super().__init__("inspect")

    def __getattr__(self, name: str) -> Any:
        return getattr(inspect, name)

    @staticmethod
    def stack() -> list[inspect.FrameInfo]:
        return _WithoutSources.getouterframes(sys._getframe(1))

    @staticmethod
    def getouterframes(frame: FrameType | None) -> list[inspect.FrameInfo]:
        frames = []
        while frame is not None:
            code = frame.f_code
            frames.append(inspect.FrameInfo(frame, code.co_filename, frame.f_lineno, code.co_name, None, None))
            frame = frame.f_back
        return frames


def import_tensor_intrin(name: str = "tvm.s_tir.tensor_intrin") -> None:
    """Imports TVM's tensor intrinsics, which every ``TuneContext`` needs, faster than TVM would.

    TVM parses 248 intrinsics from their sources and asks for the source lines of every stack frame of each, for which
    ``inspect`` searches all loaded modules: 30 to 90 seconds when torch is loaded. TVM needs the lines only to find
    out whether a function is part of a class, which no intrinsic is. During this import, and in TVM's script parser
    alone, frames come without lines; it takes 4 seconds.

    Args:
        name: The module; that of a TVM up to 0.19 is ``tvm.tir.tensor_intrin``.
    """
    if name in sys.modules:
        return
    users = [
        module
        for user, module in list(sys.modules.items())
        if user.startswith("tvm.") and "script" in user and vars(module).get("inspect") is inspect
    ]
    without_sources = _WithoutSources()
    for module in users:
        module.inspect = without_sources  # type: ignore[attr-defined]
    try:
        importlib.import_module(name)
    finally:
        for module in users:
            module.inspect = inspect  # type: ignore[attr-defined]


def build_in_worker(*arguments: Any) -> str:
    """Builds a program as a worker process of TVM's ``LocalBuilder`` does, and returns the path of its library."""
    import_tensor_intrin()
    # In the worker, which imports TVM anew, this is TVM's function.
    from tvm.s_tir.meta_schedule.builder import local_builder

    path: str = local_builder._worker_func(*arguments)
    return path


def preload_in_builders() -> None:
    """Lets the worker processes of TVM's ``LocalBuilder`` import the tensor intrinsics with this module.

    The builder starts its workers anew for each round, and their first program includes the import: 20 to 32 seconds on
    a Zen 3, of the 30 seconds after which a program is lost and the next one starts in another new process. There, a
    search measured no program in 17 minutes.
    """
    from tvm.s_tir.meta_schedule.builder import local_builder

    if hasattr(local_builder, "_worker_func"):
        local_builder._worker_func = build_in_worker
