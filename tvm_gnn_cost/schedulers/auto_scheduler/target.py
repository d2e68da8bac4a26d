"""The target of this machine."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
from tvm.target import Target


def local_target(model: str = "") -> Target:
    """The LLVM target with this machine's number of physical cores, and AVX2 if it has it.

    LLVM 10, which comes with TVM 0.17, knows no later processors.

    Args:
        model: A name for the machine, which changes no code.
    """
    cpuinfo = Path("/proc/cpuinfo")
    has_avx2 = cpuinfo.exists() and " avx2 " in cpuinfo.read_text()
    # Some machines do not tell physical cores from logical ones.
    cores = psutil.cpu_count(logical=False) or os.cpu_count()
    name = f"llvm {'-mcpu=core-avx2 ' if has_avx2 else ''}-num-cores={cores}"
    return Target(f"{name} -model={model}" if model else name)
