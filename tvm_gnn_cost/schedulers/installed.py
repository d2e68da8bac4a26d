"""Finds out which TVM is installed and refuses one that lacks what is needed; imports none."""

from __future__ import annotations

import importlib.util
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tvm_gnn_cost.errors import WrongTVM

#: Subpackage -> the TVM that has it, and how to get one.
_NEEDED = {
    "auto_scheduler": (
        "a TVM with auto_scheduler, one up to 0.19; `make auto-scheduler` sets up an environment that has one"
    ),
    "s_tir": "today's TVM, with s_tir.meta_schedule; pip install 'tvm-gnn-cost[tvm]'",
}


def has(part: str) -> bool:
    """Whether the installed TVM has the subpackage ``part``; only looks for its folder."""
    folder = _folder()
    return folder is not None and (folder / part).is_dir()


def require_tvm(part: str) -> None:
    """Checks that the installed TVM has the subpackage ``auto_scheduler`` or ``s_tir``.

    Raises:
        WrongTVM: TVM lacks it or is missing; the message says what was found and what to do.
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
