"""Targets: of this machine, or parsed from a string."""

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
    """The target of a string: TVM's JSON, or a tag.

    Raises:
        InputError: TVM knows no such target, its kind is not llvm, or it has no number of cores.
    """
    # TVM's errors have any type, and it warns about a missing GPU.
    try:
        with without_stderr():
            target = tvm.target.Target(json.loads(text) if text.lstrip().startswith("{") else text)
    except Exception as error:
        raise InputError(f"target {text}: unknown target ({last_line(error)})") from error
    if target.kind.name != "llvm":
        raise InputError(f'target {text}: only targets of kind "llvm" are supported')
    if "num-cores" not in target.attrs:
        raise InputError(f'target {text}: the number of cores, "num-cores", is missing')
    return target
