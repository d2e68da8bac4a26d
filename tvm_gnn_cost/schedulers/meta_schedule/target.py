"""The target of this machine."""

from __future__ import annotations

import tvm
from tvm.s_tir import meta_schedule as ms


def local_target() -> tvm.target.Target:
    """The LLVM target with this machine's processor and number of physical cores."""
    processor = tvm.get_global_func("target.llvm_get_system_cpu")()
    return tvm.target.Target({"kind": "llvm", "mcpu": str(processor), "num-cores": ms.utils.cpu_count(logical=False)})
