"""Extracts real schedules of MetaSchedule and bad input; ``test_sanitizers.py`` runs it with a sanitizer build.

Usage: exercise_meta_schedule.py LIBRARY
"""

from __future__ import annotations

import sys

import tvm
import tvm_ffi
from tvm import te, tirx, topi

from tests.schedulers.meta_schedule.real_schedules import candidates, small_target, unprocessed

extension = tvm_ffi.load_module(sys.argv[1])


def conv() -> tirx.PrimFunc:
    data = te.placeholder((1, 8, 14, 14), name="data")
    weight = te.placeholder((16, 8, 3, 3), name="weight")
    return te.create_prim_func([data, weight, topi.nn.relu(topi.nn.conv2d(data, weight, 1, 1, 1))])


def softmax() -> tirx.PrimFunc:
    data = te.placeholder((32, 64), name="data")
    return te.create_prim_func([data, topi.nn.softmax(data)])


def product() -> tirx.PrimFunc:
    # Halves: on a GPU the rules make tensor intrinsics of it.
    a, b = (te.placeholder((128, 128), "float16", name) for name in ("a", "b"))
    return te.create_prim_func([a, b, topi.nn.matmul(a, b, out_dtype="float32")])


def deep() -> tvm.IRModule:
    expr = tirx.Var("x", "int32")
    for _ in range(1500):
        expr = tirx.Add(expr, tirx.const(1, "int32"))
    return tvm.IRModule({"main": tirx.PrimFunc([], tirx.Evaluate(expr))})


def main() -> None:
    mods = []
    gpu = tvm.target.Target("nvidia/nvidia-a100")
    for func, target in ((conv(), small_target()), (softmax(), small_target()), (conv(), gpu), (product(), gpu)):
        mod = tvm.IRModule({"main": func.with_attr("global_symbol", "main")})
        mods += [mod, *unprocessed(mod, target)]
        mods += [candidate.sch.mod for candidate in candidates(mod, target, 4)]
    bad = [None, "text", 3, tvm.IRModule(), deep(), object()]
    for is_tree in (True, False):
        for threads in (1, 4):
            for _ in range(2):
                *_, errors = extension.extract(mods + bad + mods, is_tree, threads, True)
                assert sorted(errors) == list(range(len(mods), len(mods) + len(bad)))
        for item in bad:
            try:
                extension.extract([item], is_tree, 2, False)
            except (TypeError, ValueError):
                continue
            raise AssertionError(item)
    # So large that the arrays are mapped blocks and not on the heap.
    extension.extract(mods * 200, True, 2, False)
    print(f"{len(mods)} modules extracted")


if __name__ == "__main__":
    main()
