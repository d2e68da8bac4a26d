from __future__ import annotations

import psutil
import tvm

from tvm_gnn_cost.schedulers.meta_schedule.target import local_target


def test_the_processor_and_its_physical_cores() -> None:
    target = local_target()
    assert str(target.kind) == "llvm"
    assert target.attrs["mcpu"] == tvm.get_global_func("target.llvm_get_system_cpu")()
    assert int(target.attrs["num-cores"]) == (psutil.cpu_count(logical=False) or psutil.cpu_count())


def test_a_program_can_be_built_for_it() -> None:
    assert tvm.target.Target(str(local_target())).attrs["mcpu"] == local_target().attrs["mcpu"]
