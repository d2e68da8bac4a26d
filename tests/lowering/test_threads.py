from __future__ import annotations

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import te
from tvm.s_tir import Schedule
from tvm.tirx import For, ForKind

from tvm_gnn_cost.lowering import code_generation
from tvm_gnn_cost.lowering.threads import on_one_thread
from tvm_gnn_cost.schedulers.meta_schedule.target import local_target


def added(size: int) -> tvm.tirx.PrimFunc:
    """A parallel, vectorized function that adds 1 to a vector."""
    before = te.placeholder((size,), name="before")
    schedule = Schedule(te.create_prim_func([before, te.compute((size,), lambda i: before[i] + 1.0, name="after")]))
    (loop,) = schedule.get_loops(schedule.get_sblock("after"))
    chunks, lanes = schedule.split(loop, [None, 16])
    schedule.parallel(chunks)
    schedule.vectorize(lanes)
    return schedule.mod["main"]


def kinds(function: tvm.tirx.PrimFunc) -> list[int]:
    loops: list[For] = []
    tvm_ffi.structural_walk(function.body, [(For, loops.append)])
    return [loop.kind for loop in loops]


@pytest.mark.parametrize(("size", "kind"), [(4096, ForKind.SERIAL), (4112, ForKind.PARALLEL)])
def test_only_small_functions_run_on_one_thread(size: int, kind: int) -> None:
    changed = on_one_thread(added(size))
    assert sorted(kinds(changed)) == sorted([kind, ForKind.VECTORIZED])
    library = code_generation.build(tvm.IRModule({"main": added(size)}), local_target())
    result = tvm.runtime.tensor(np.zeros(size, np.float32))
    library["main"](tvm.runtime.tensor(np.arange(size, dtype=np.float32)), result)
    np.testing.assert_array_equal(result.numpy(), np.arange(size) + 1)


def test_a_reduction_counts_all_of_its_iterations() -> None:
    matrix = te.placeholder((64, 128), name="matrix")
    over = te.reduce_axis((0, 128))
    rows = te.compute((64,), lambda i: te.sum(matrix[i, over], axis=over), name="rows")
    schedule = Schedule(te.create_prim_func([matrix, rows]))
    schedule.parallel(schedule.get_loops(schedule.get_sblock("rows"))[0])
    assert ForKind.PARALLEL in kinds(on_one_thread(schedule.mod["main"]))


@pytest.mark.parametrize(("columns", "kind"), [(512, ForKind.SERIAL), (528, ForKind.PARALLEL)])
def test_a_small_product_in_vectors_runs_on_one_thread(columns: int, kind: int) -> None:
    vector, matrix = te.placeholder((128,), name="vector"), te.placeholder((128, columns), name="matrix")
    over = te.reduce_axis((0, 128))
    product = te.compute((columns,), lambda i: te.sum(vector[over] * matrix[over, i], axis=over), name="product")
    schedule = Schedule(te.create_prim_func([vector, matrix, product]))
    column, step = schedule.get_loops(schedule.get_sblock("product"))
    chunks, lanes = schedule.split(column, [None, 16])
    schedule.reorder(chunks, step, lanes)
    schedule.parallel(chunks)
    assert ForKind.PARALLEL in kinds(on_one_thread(schedule.mod["main"]))
    schedule.vectorize(lanes)
    assert (ForKind.PARALLEL in kinds(on_one_thread(schedule.mod["main"]))) == (kind == ForKind.PARALLEL)


def test_extents_that_are_unknown_stay_parallel() -> None:
    size = tvm.tirx.Var("size", "int64")
    before = te.placeholder((size,), name="before")
    schedule = Schedule(te.create_prim_func([before, te.compute((size,), lambda i: before[i] + 1.0, name="after")]))
    schedule.parallel(schedule.get_loops(schedule.get_sblock("after"))[0])
    assert kinds(on_one_thread(schedule.mod["main"])) == [ForKind.PARALLEL]
