"""The target of this machine, or of one that measures for it."""

from __future__ import annotations

import json

import tvm
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.datasets.records import last_line
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.schedulers.meta_schedule.search_log import without_stderr


def local_target() -> tvm.target.Target:
    """The LLVM target with this machine's processor and number of physical cores."""
    processor = tvm.get_global_func("target.llvm_get_system_cpu")()
    return tvm.target.Target({"kind": "llvm", "mcpu": str(processor), "num-cores": ms.utils.cpu_count(logical=False)})


def target_of(text: str) -> tvm.target.Target:
    """The target that a text describes: TVM's JSON, or one of its tags.

    Raises:
        InputError: TVM knows no such target, it is none of LLVM, or it does not say how many cores it has.
    """
    # TVM's errors have any type, and it warns of a graphics card that is not there.
    try:
        with without_stderr():
            target = tvm.target.Target(json.loads(text) if text.lstrip().startswith("{") else text)
    except Exception as error:
        raise InputError(f"--target {text}: TVM knows no such target ({last_line(error)})") from error
    if target.kind.name != "llvm":
        raise InputError(f'--target {text}: schedules are for processors that LLVM compiles for, of the kind "llvm"')
    if "num-cores" not in target.attrs:
        raise InputError(f'--target {text}: it must say how many cores it has, "num-cores"')
    return target
