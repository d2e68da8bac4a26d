"""Targets: of this machine, or parsed from a string."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
from tvm.target import Target

from tvm_gnn_cost.datasets.records import last_line
from tvm_gnn_cost.errors import InputError


def local_target(model: str = "") -> Target:
    """The LLVM target with this machine's number of physical cores, and AVX2 if it has it.

    LLVM 10, which TVM 0.17 contains, knows no later processors.

    Args:
        model: A name for the machine, which changes no code.
    """
    cpuinfo = Path("/proc/cpuinfo")
    has_avx2 = cpuinfo.exists() and " avx2 " in cpuinfo.read_text()
    # None on machines that do not report physical cores.
    cores = psutil.cpu_count(logical=False) or os.cpu_count()
    name = f"llvm {'-mcpu=core-avx2 ' if has_avx2 else ''}-num-cores={cores}"
    return Target(f"{name} -model={model}" if model else name)


def target_of(text: str, model: str = "") -> Target:
    """The target of a string such as ``llvm -mtriple=aarch64-linux-gnu -num-cores=4``.

    Args:
        text: The target in TVM's syntax.
        model: See :func:`local_target`.

    Raises:
        InputError: TVM knows no such target, or it has no number of cores.
    """
    # TVM's errors have any type.
    try:
        target = Target(f"{text} -model={model}" if model and "-model=" not in text else text)
    except Exception as error:
        raise InputError(f"target {text}: unknown target ({last_line(error)})") from error
    if "num-cores" not in target.attrs:
        raise InputError(f"target {text}: the number of cores, -num-cores, is missing")
    return target
