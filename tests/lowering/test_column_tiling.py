"""Reductions that keep the last axis."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tvm
from tvm import te, topi
from tvm.s_tir import Schedule
from tvm.tirx import ForKind

from tests.lowering.test_design_space import candidates
from tests.lowering.test_row_tiling import TARGET, function
from tvm_gnn_cost.lowering.blocks import TILED
from tvm_gnn_cost.lowering.code_generation import build
from tvm_gnn_cost.lowering.column_tiling import ColumnTiling
from tvm_gnn_cost.lowering.normalization import normalize


def mean(axes: Sequence[int], keepdims: bool) -> Any:
    return lambda x: topi.divide(topi.sum(x, axes, keepdims), float(np.prod([int(x.shape[axis]) for axis in axes])))


COLUMNS = {
    "mean of images": ((2, 7, 5, 24), mean((1, 2), True), lambda x: x.mean((1, 2), keepdims=True)),
    "sum of rows": ((31, 48), lambda x: topi.sum(x, 0), lambda x: x.sum(0)),
    "maximum over time": ((3, 1, 40, 16), lambda x: topi.max(x, 2), lambda x: x.max(2)),
    "of vectors of four": ((9, 20), lambda x: topi.sum(x, 0), lambda x: x.sum(0)),
    "norm over time": (
        (2, 33, 32),
        lambda x: topi.nn.relu(normalize(x, [1], True, 1e-5, 0.0)),
        lambda x: np.maximum((x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5), 0),
    ),
    "norm of images": (
        (1, 6, 5, 64),
        lambda x: normalize(x, [1, 2], True, 1e-5, 0.0),
        lambda x: (x - x.mean((1, 2), keepdims=True)) / np.sqrt(x.var((1, 2), keepdims=True) + 1e-5),
    ),
}


def tiled(mod: tvm.IRModule) -> list[Schedule]:
    schedule = Schedule(mod)
    first = schedule.get_child_blocks(schedule.get_sblock("root"))[0]
    return [
        each
        for each in ColumnTiling(8)._inst.apply(schedule, first)
        if TILED in each.get(each.get_sblock("root")).annotations
    ]


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_are_computed_at_once_in_vectors(name: str) -> None:
    shape, compute, _ = COLUMNS[name]
    schedules = tiled(function(shape, compute))
    assert len(schedules) >= 2
    for each in schedules:
        blocks = each.get_child_blocks(each.get_sblock("root"))
        assert len({str(each.get(each.get_loops(block)[0])) for block in blocks}) == 1
        for block in blocks:
            lane = each.get(each.get_loops(block)[-1])
            assert (int(lane.kind), int(lane.extent)) == (ForKind.VECTORIZED, 4 if "four" in name else 8)


@pytest.mark.parametrize("name", COLUMNS)
def test_candidates_compute_what_the_task_does(name: str) -> None:
    shape, compute, exact = COLUMNS[name]
    data = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    expected: npt.NDArray[Any] = exact(data.astype(np.float64))
    drawn = candidates(mod := function(shape, compute), 6)
    size = [int(extent) for extent in mod["main"].params[-1].shape]
    for candidate in drawn:
        assert TILED in candidate.sch.get(candidate.sch.get_sblock("root")).annotations
        output = tvm.runtime.tensor(np.zeros(size, np.float32))
        build(candidate.sch.mod, TARGET)["main"](tvm.runtime.tensor(data), output)
        np.testing.assert_allclose(output.numpy(), expected, rtol=2e-5, atol=1e-5)


def depthwise(x: te.Tensor) -> te.Tensor:
    weights = te.compute((3, 3, 16), lambda *_: 1.0, name="weights")
    rows, columns = te.reduce_axis((0, 3)), te.reduce_axis((0, 3))
    return te.compute(
        (1, 6, 6, 16),
        lambda n, y, z, c: te.sum(x[n, y + rows, z + columns, c] * weights[rows, columns, c], axis=[rows, columns]),
    )


@pytest.mark.parametrize(
    ("shape", "compute"),
    [
        ((4, 24), lambda x: topi.sum(x, 1)),
        ((4, 24), topi.nn.relu),
        ((4, 24), topi.sum),
        ((9, 15), lambda x: topi.sum(x, 0)),
        ((1, 8, 8, 16), depthwise),
        ((1, 8, 8, 16), lambda x: topi.nn.pool2d(x, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max", layout="NHWC")),
    ],
    ids=["rows", "no reduction", "of all", "no vector", "product", "window"],
)
def test_other_functions_are_left_to_other_rules(shape: tuple[int, ...], compute: Any) -> None:
    assert not tiled(function(shape, compute))
