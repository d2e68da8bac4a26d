"""Which TVM is installed, and what either TVM has under another name; imports no TVM before a name is used."""

from __future__ import annotations

import importlib.util
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tvm_gnn_cost.errors import WorkError, WrongTVMError

if TYPE_CHECKING:
    from tvm.s_tir import Schedule
    from tvm.s_tir import meta_schedule as ms
    from tvm.s_tir.schedule import Trace
    from tvm.support.popen_pool import PopenPoolExecutor, PopenWorker, StatusKind

__all__ = ["PopenPoolExecutor", "PopenWorker", "Schedule", "StatusKind", "Trace", "has", "ms", "require_tvm"]

#: Subpackage -> the TVM that has it, and how to get one.
_NEEDED = {
    "auto_scheduler": ("a TVM up to 0.19, with auto_scheduler; `make auto-scheduler` sets up such an environment"),
    "s_tir": "today's TVM, with s_tir.meta_schedule; pip install 'tvm-gnn-cost[tvm]'",
}

#: Name -> its module in a TVM with ``s_tir``, and in an earlier one; ``ms`` is a module itself.
_HOMES = {
    "ms": ("tvm.s_tir.meta_schedule", "tvm.meta_schedule"),
    "Schedule": ("tvm.s_tir", "tvm.tir"),
    "Trace": ("tvm.s_tir.schedule", "tvm.tir.schedule"),
    **dict.fromkeys(
        ("PopenPoolExecutor", "PopenWorker", "StatusKind"), ("tvm.support.popen_pool", "tvm.contrib.popen_pool")
    ),
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = import_module(_HOMES[name][0 if has("s_tir") else 1])
    return module if name == "ms" else getattr(module, name)


def has(part: str) -> bool:
    """Whether the installed TVM has the folder of the subpackage ``part``."""
    folder = _folder()
    return folder is not None and (folder / part).is_dir()


def require_tvm(part: str) -> None:
    """Checks that the installed TVM has the subpackage ``auto_scheduler`` or ``s_tir``.

    Raises:
        WrongTVMError: TVM lacks it or is missing; the message says what was found and what to do.
    """
    if not has(part):
        raise WrongTVMError(f"this needs {_NEEDED[part]}; found {_found()}")
    # TVM 0.25 has s_tir, but keeps buffers apart from variables: its programs would become other graphs.
    if part == "s_tir" and "apache-tvm 0.25." in _found():
        raise WrongTVMError(f"this needs TVM 0.26 or 0.27; found {_found()}; pip install 'tvm-gnn-cost[tvm]'")


def require_compiler() -> None:
    """Checks that TVM finds the compiler that links every library on this machine.

    Raises:
        WorkError: it does not.
    """
    if import_module("tvm.support.cc" if has("s_tir") else "tvm.contrib.cc").get_cc() is None:
        raise WorkError("TVM links programs with a C++ compiler, and there is none; install g++ or clang, or set CXX")


def _folder() -> Path | None:
    spec = importlib.util.find_spec("tvm")
    return Path(spec.origin).parent if spec is not None and spec.origin else None


def _found() -> str:
    folder = _folder()
    if folder is None:
        return "no TVM at all"
    for package in ("apache-tvm", "bitblas", "tvm"):
        try:
            return f"that of {package} {version(package)} in {folder}"
        except PackageNotFoundError:
            continue
    return f"one in {folder}"
