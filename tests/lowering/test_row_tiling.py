"""Reductions along rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, topi
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.tirx import ForKind

from tests.lowering.test_design_space import candidates, product
from tvm_gnn_cost.lowering.blocks import TILED
from tvm_gnn_cost.lowering.code_generation import build
from tvm_gnn_cost.lowering.row_tiling import RowTiling

TARGET = tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3"})


def function(shape: tuple[int, ...], compute: Callable[[te.Tensor], te.Tensor]) -> tvm.IRModule:
    data = te.placeholder(shape, "float32", "data")
    return tvm.IRModule({"main": te.create_prim_func([data, compute(data)])})


def normalized(data: te.Tensor) -> te.Tensor:
    """A normalization over the last axis without scale."""
    size = int(data.shape[-1])
    centered = topi.subtract(data, topi.divide(topi.sum(data, -1, keepdims=True), float(size)))
    variance = topi.divide(topi.sum(topi.multiply(centered, centered), -1, keepdims=True), float(size))
    return topi.divide(centered, topi.sqrt(topi.add(variance, 1e-5)))


ROWS = {
    "softmax": function((3, 5, 197), lambda x: topi.nn.softmax(x, -1)),
    "softmax of short rows": function((6, 5), lambda x: topi.nn.softmax(x, -1)),
    "softmax with units": function((1, 6, 1, 31), lambda x: topi.nn.softmax(x, -1)),
    "normalization": function((2, 7, 48), normalized),
    "mean over images": function((4, 3, 7, 9), lambda x: topi.divide(topi.sum(x, (2, 3)), 63.0)),
    "maximum": function((9, 100), lambda x: topi.max(x, -1)),
}


def outputs(mod: tvm.IRModule, *built: Any) -> list[Any]:
    """What compiled versions of a function of one input compute of the same random values."""
    first, *_, last = ([int(size) for size in item.shape] for item in ms.arg_info.ArgInfo.from_prim_func(mod["main"]))
    data = tvm.runtime.tensor(np.random.default_rng(0).standard_normal(first).astype(np.float32))
    results = [tvm.runtime.tensor(np.zeros(last, np.float32)) for _ in built]
    for library, result in zip(built, results, strict=True):
        library["main"](data, result)
    return [result.numpy() for result in results]


@pytest.mark.parametrize("name", ROWS)
def test_rows_are_computed_at_once(name: str) -> None:
    schedule = Schedule(ROWS[name])
    first = schedule.get_child_blocks(schedule.get_sblock("root"))[0]
    schedules = RowTiling(8)._inst.apply(schedule, first)
    assert len(schedules) == 2
    for each in schedules:
        root = each.get_sblock("root")
        assert TILED in each.get(root).annotations
        assert len({str(each.get(each.get_loops(block)[0])) for block in each.get_child_blocks(root)}) == 1


@pytest.mark.parametrize("name", ROWS)
def test_candidates_compute_what_the_task_does(name: str) -> None:
    mod = ROWS[name]
    for candidate in candidates(mod, 4):
        assert TILED in candidate.sch.get(candidate.sch.get_sblock("root")).annotations
        expected, output = outputs(mod, tvm.compile(mod, TARGET), build(candidate.sch.mod, TARGET))
        np.testing.assert_allclose(output, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("shape", [(4, 19), (2, 3, 7, 5), (1, 300)])
def test_functions_without_reductions_are_offered_both_ways(shape: tuple[int, ...]) -> None:
    mod = function(shape, lambda x: topi.add(topi.exp(topi.transpose(x)), 1.0))
    schedule = Schedule(mod)
    first = schedule.get_child_blocks(schedule.get_sblock("root"))[0]
    tiled = [
        TILED in each.get(each.get_sblock("root")).annotations for each in RowTiling(8)._inst.apply(schedule, first)
    ]
    assert tiled[0] is False
    assert all(tiled[1:])
    data = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    for candidate in candidates(mod, 6):
        output = tvm.runtime.tensor(np.zeros(shape[::-1], np.float32))
        build(candidate.sch.mod, TARGET)["main"](tvm.runtime.tensor(data), output)
        np.testing.assert_allclose(output.numpy(), np.exp(data.T) + 1, rtol=1e-6)


def sliced(data: te.Tensor) -> te.Tensor:
    """A step of a scan: one of the inner rows, with a short last axis."""
    _, rows, _, values = map(int, data.shape)
    return topi.add(topi.strided_slice(data, [0, 0, 3, 0], [1, rows, 4, values]), 1.0)


def scaled(data: te.Tensor) -> te.Tensor:
    """Features times those of the first row, as a bias is added."""
    return te.compute(data.shape, lambda a, b, c: data[a, b, c] * data[0, 0, c], "scaled")


def gathered(data: te.Tensor) -> te.Tensor:
    """Values whose distance is itself a value."""
    # The first value is less than 1, so that the distance is 0.
    return te.compute(data.shape, lambda a, b, c: data[a, b, data[0, 0, 0].astype("int32") * c], "gathered")


@pytest.mark.parametrize(
    ("shape", "compute", "width"),
    [
        ((1, 128, 24, 8), sliced, 8),  # from Mamba's state, whose vectors of 16 were loaded one by one
        ((64, 49, 5), scaled, 5),
        ((64, 49, 2), lambda x: topi.exp(scaled(x)), 16),
        ((64, 49, 12), lambda x: topi.exp(scaled(x)), 12),
        ((64, 48, 8), lambda x: topi.exp(scaled(x)), 16),  # whole vectors for exp
        ((64, 7, 5), lambda x: topi.add(x, 1.0), 16),
        ((64, 7, 5), gathered, 16),
        ((4, 64, 5), lambda x: topi.strided_slice(x, [0, 8, 0], [4, 56, 5]), 16),
        ((16, 40, 2), lambda x: topi.strided_slice(x, [0, 0, 0], [16, 40, 1]), 16),
        ((64, 7, 5), lambda x: topi.reshape(topi.transpose(x), (35, 64)), 16),
    ],
)
def test_vectors_are_of_adjacent_values(
    shape: tuple[int, ...], compute: Callable[[te.Tensor], te.Tensor], width: int
) -> None:
    mod = function(shape, compute)
    schedule = Schedule(mod)
    first = schedule.get_child_blocks(schedule.get_sblock("root"))[0]
    _, *schedules = RowTiling(16)._inst.apply(schedule, first)
    assert schedules
    for each in schedules:
        (block,) = each.get_child_blocks(each.get_sblock("root"))
        last = each.get(each.get_loops(block)[-1])
        assert (int(last.kind), int(last.extent)) == (ForKind.VECTORIZED, width)
        expected, output = outputs(mod, tvm.compile(mod, TARGET), build(each.mod, TARGET))
        np.testing.assert_allclose(output, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    "mod",
    [
        function((3, 5, 16), lambda x: topi.nn.softmax(x, 1)),  # not along the last axis
        function((2, 7, 9, 16), lambda x: topi.sum(x, (1, 2))),  # channels last
        function((48,), lambda x: topi.sum(x, 0)),  # one row
        function((5,), topi.nn.relu),  # less than a vector
        function((4, 16), lambda x: topi.add(topi.sum(x, 1, keepdims=True), topi.sum(x, 0, keepdims=True))),
        function((4, 16), lambda x: topi.argmax(x, 1)),
        product(16, 48),
        product(16, 48, transposed=True),
        product(1, 48),
    ],
)
def test_other_functions_are_left_to_other_rules(mod: tvm.IRModule) -> None:
    schedule = Schedule(mod)
    first = schedule.get_child_blocks(schedule.get_sblock("root"))[0]
    assert [each.mod for each in RowTiling(8)._inst.apply(schedule, first)] == [mod]
