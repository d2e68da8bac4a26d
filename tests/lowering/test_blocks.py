from __future__ import annotations

from typing import Any

import pytest
import tvm
from tvm import te, topi
from tvm.s_tir import Schedule
from tvm.tirx import ForKind

from tvm_gnn_cost.lowering.blocks import (
    is_contiguous,
    is_elementwise,
    is_spatial,
    spread,
    vectorize_last,
)


def schedule(columns: int = 32) -> Schedule:
    """A product, a bias and a transpose."""
    left, right = te.placeholder((8, 24), "float32", "left"), te.placeholder((24, columns), "float32", "right")
    bias = te.placeholder((columns,), "float32", "bias")
    out = topi.transpose(topi.add(topi.nn.matmul(left, right), bias))
    return Schedule(tvm.IRModule({"main": te.create_prim_func([left, right, bias, out])}))


def kinds(sch: Schedule, block: str) -> list[int]:
    return [int(sch.get(loop).kind) for loop in sch.get_loops(sch.get_sblock(block))]


def test_what_is_no_reduction_is_spatial() -> None:
    sch = schedule()
    assert [is_spatial(sch, sch.get_sblock(name)) for name in ("T_matmul_NN", "T_add", "T_transpose")] == [
        *(False, True, True),
    ]


def test_elementwise_is_who_reads_at_its_own_position() -> None:
    sch = schedule()
    product, added = (sch.get(sch.get_sblock(name)).writes[0].source for name in ("T_matmul_NN", "T_add"))
    assert is_elementwise(sch, sch.get_sblock("T_add"), product)
    assert not is_elementwise(sch, sch.get_sblock("T_transpose"), added)
    assert not is_elementwise(sch, sch.get_sblock("T_matmul_NN"), product)


def test_contiguous_is_who_has_the_variable_last_or_not_at_all() -> None:
    sch = schedule()
    stmt = sch.get(sch.get_sblock("T_matmul_NN"))
    row, column, k = (iter_var.var for iter_var in stmt.iter_vars)
    regions: dict[str, Any] = {str(region.source.name): region for region in stmt.reads}
    assert is_contiguous(regions["right"], column)
    assert not is_contiguous(regions["right"], k)
    assert is_contiguous(regions["left"], k)
    assert is_contiguous(regions["right"], row)


@pytest.mark.parametrize(("columns", "loops"), [(32, [32 // 16, 16]), (64, [4, 16]), (24, [24]), (1, [1]), (65, [65])])
def test_the_last_loop_becomes_vectors_where_it_can(columns: int, loops: list[int]) -> None:
    sch = schedule(columns)
    block = sch.get_sblock("T_add")
    vectorize_last(sch, block, 16)
    assert [int(sch.get(loop).extent) for loop in sch.get_loops(block)] == [8, *loops]
    assert (kinds(sch, "T_add")[-1] == ForKind.VECTORIZED) == (columns not in (1, 65))


def test_a_block_is_spread_over_the_cores_once() -> None:
    sch = schedule()
    for name in ("T_add", "T_matmul_NN"):
        for _ in range(2):
            spread(sch, sch.get_sblock(name), 16)
    assert kinds(sch, "T_add") == [ForKind.PARALLEL, ForKind.SERIAL, ForKind.VECTORIZED]
    assert kinds(sch, "T_matmul_NN") == [ForKind.SERIAL] * 3
