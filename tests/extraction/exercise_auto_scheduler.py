"""Extracts states of ``auto_scheduler`` and bad input; ``test_sanitizers.py`` runs it with a sanitizer build.

Usage: exercise_auto_scheduler.py LIBRARY TENSET_FOLDER
"""

from __future__ import annotations

import sys
from pathlib import Path

import tvm
import tvm_ffi
from tvm import tir

from tests.schedulers.auto_scheduler.small_tasks import (
    broken_state,
    conv_task,
    matmul_task,
    measured_states,
    sample_states,
)
from tvm_gnn_cost.schedulers.auto_scheduler.records import read_tenset

extension = tvm_ffi.load_module(sys.argv[1])
LIBRARY = tvm._ffi.base._LIB._name


def deep() -> tvm.IRModule:
    expr: tir.PrimExpr = tir.Var("x", "int32")
    for _ in range(1500):
        expr = tir.Add(expr, tir.IntImm("int32", 1))
    return tvm.IRModule({"main": tir.PrimFunc([], tir.Evaluate(expr))})


def address(item: object) -> int:
    return item.handle.value  # type: ignore[attr-defined]


def main() -> None:
    populations = [(task, sample_states(task, 6)) for task in (matmul_task(), conv_task())]
    data = read_tenset(Path(sys.argv[2]))
    populations += measured_states(data, data.files, 3)
    count = 0
    for task, states in populations:
        broken = broken_state(task)
        objects = [getattr(state, "state_object", state) for state in states]
        everything = [*objects, getattr(broken, "state_object", broken), *objects]
        for is_tree in (True, False):
            for threads in (1, 4):
                handles = tvm_ffi.Array([address(state) for state in everything])
                *_, errors = extension.extract_auto_scheduler(
                    LIBRARY, address(task.compute_dag), handles, is_tree, threads, True
                )
                assert list(errors) == [len(objects)], dict(errors)
                count += len(everything)
    bad = [deep(), tvm.IRModule(), populations[0][0].compute_dag]
    for is_tree in (True, False):
        handles = tvm_ffi.Array([address(item) for item in bad])
        *_, errors = extension.extract_auto_scheduler(LIBRARY, 0, handles, is_tree, 2, True)
        assert len(errors) == len(bad), dict(errors)
    print(f"{count} states extracted")


if __name__ == "__main__":
    main()
