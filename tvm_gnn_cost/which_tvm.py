"""Which TVM is installed, and a clear word where it is not the one that is needed."""

from __future__ import annotations

import importlib.util
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_NEEDED = {
    "auto_scheduler": "a TVM with auto_scheduler, one up to 0.19; `make ansor` sets up an environment that has one",
    "s_tir": "today's TVM, with s_tir.meta_schedule; pip install 'tvm-gnn-cost[tvm]'",
}


class WrongTVM(ImportError):
    """The installed TVM is not one that can do this, or there is none."""


def has(part: str) -> bool:
    """Whether the installed TVM has the subpackage ``part``, found out without importing it."""
    folder = _folder()
    return folder is not None and (folder / part).is_dir()


def need(part: str) -> None:
    """Checks that the installed TVM has the subpackage ``auto_scheduler`` or ``s_tir``.

    Raises:
        WrongTVM: it lacks it, or there is no TVM; the message says what was found and what to do.
    """
    if not has(part):
        raise WrongTVM(f"this needs {_NEEDED[part]}; found {_found()}")


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
