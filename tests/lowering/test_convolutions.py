"""Depthwise and grouped convolutions, and those whose number of channels is no multiple of a vector."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import tvm
from tvm import relax
from tvm.s_tir import Schedule
from tvm.tirx import ForKind

from tests.lowering.relax_modules import build, outputs
from tvm_gnn_cost.lowering.blocks import TILED, root_of
from tvm_gnn_cost.lowering.convolutions import lower_convolutions
from tvm_gnn_cost.lowering.design_space import RegisterTiling
from tvm_gnn_cost.lowering.layouts import legalize

LANES = 8

#: Shapes of the input and of the weights, strides, padding, dilation, groups.
CASES: dict[str, tuple[Any, ...]] = {
    "depthwise": ((2, 9, 8, 16), (3, 3, 1, 16), [1, 1], [1, 1, 1, 1], [1, 1], 16),
    "depthwise, strides and uneven padding": ((2, 11, 8, 24), (5, 3, 1, 24), [2, 1], [2, 0, 1, 1], [1, 1], 24),
    "depthwise, dilated": ((1, 9, 9, 8), (3, 3, 1, 8), [1, 1], [2, 2, 2, 2], [2, 2], 8),
    "two outputs of a channel": ((1, 6, 6, 8), (3, 3, 1, 16), [1, 1], [1, 1, 1, 1], [1, 1], 8),
    "groups": ((2, 6, 7, 24), (3, 3, 8, 48), [1, 1], [1, 1, 1, 1], [1, 1], 3),
    "groups that no vector divides": ((2, 6, 7, 12), (1, 1, 6, 68), [1, 1], [0, 0, 0, 0], [1, 1], 2),
    "channels that no vector divides": ((2, 6, 7, 5), (3, 3, 5, 22), [2, 1], [1, 1, 1, 1], [1, 1], 1),
    "five groups": ((1, 7, 7, 40), (1, 1, 8, 80), [1, 1], [0, 0, 0, 0], [1, 1], 5),
    "along one axis": ((2, 40, 32), (7, 8, 32), [2], [3, 3], [1], 4),
    "along three axes": ((1, 4, 5, 6, 8), (3, 3, 3, 1, 8), [1, 1, 1], [1] * 6, [1, 1, 1], 8),
}


def weights(name: str) -> npt.NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal(CASES[name][1]).astype(np.float32)


def network(name: str) -> tvm.IRModule:
    """The convolution, a bias and ReLU."""
    shape, kernel, strides, padding, dilation, groups = CASES[name]
    rank = len(strides)
    layouts = {1: ("NWC", "WIO"), 2: ("NHWC", "HWIO"), 3: ("NDHWC", "DHWIO")}[rank]
    convolution = getattr(relax.op.nn, f"conv{rank}d")

    def emit(builder: relax.BlockBuilder, x: relax.Var) -> Any:
        result = convolution(x, relax.const(weights(name)), strides, padding, dilation, groups, *layouts)
        bias = relax.const(np.linspace(-1, 1, kernel[-1], dtype=np.float32))
        return relax.op.nn.relu(builder.emit(relax.op.add(builder.emit(result), bias)))

    return build(emit, shape)


def expected(name: str) -> npt.NDArray[np.float32]:
    """PyTorch's result for the inputs of ``outputs``."""
    shape, kernel, strides, padding, dilation, groups = CASES[name]
    rank = len(strides)
    x = torch.from_numpy(np.random.default_rng(0).standard_normal(shape).astype(np.float32)).movedim(-1, 1)
    sides = list(zip(padding[:rank], padding[rank:], strict=True))
    padded = torch.nn.functional.pad(x, [size for side in reversed(sides) for size in side])
    matrix = torch.from_numpy(weights(name)).permute(rank + 1, rank, *range(rank))
    convolution = getattr(torch.nn.functional, f"conv{rank}d")
    bias = torch.linspace(-1, 1, kernel[-1])
    result = convolution(padded, matrix, bias, strides, 0, dilation, groups).relu().movedim(1, -1)
    array: npt.NDArray[np.float32] = result.numpy()
    return array


@pytest.mark.parametrize("name", CASES)
def test_it_is_one_function_with_its_epilogue_and_its_tiles_compute_the_same(name: str) -> None:
    lowered, _ = legalize(network(name))
    np.testing.assert_allclose(outputs(lowered)[0], expected(name), rtol=1e-4, atol=1e-4)
    products = [
        var
        for var, item in lowered.functions_items()
        if isinstance(item, tvm.tirx.PrimFunc) and "conv" in var.name_hint
    ]
    # The reshape from groups to channels copies nothing.
    assert len(products) == 1
    assert all(
        var in products or "reshape" in var.name_hint
        for var, item in lowered.functions_items()
        if isinstance(item, tvm.tirx.PrimFunc)
    )
    (var,) = products
    schedule = Schedule(lowered[var].with_attr("global_symbol", "main"))
    for inlined in ("T_add", "columns"):
        if any(schedule.get(item).name_hint == inlined for item in schedule.get_child_blocks(root_of(schedule))):
            schedule.compute_inline(schedule.get_sblock(inlined))
    tiled = RegisterTiling(LANES)._inst.apply(schedule, schedule.get_sblock("convolution"))
    for each in (tiled[0], tiled[-1]):
        assert TILED in each.get(root_of(each)).annotations
        changed = lowered.clone()
        changed.update_func(var, each.mod["main"].with_attr("global_symbol", var.name_hint))
        np.testing.assert_allclose(outputs(changed)[0], expected(name), rtol=1e-4, atol=1e-4)


def test_groups_are_not_in_a_register_tile() -> None:
    lowered, _ = legalize(network("five groups"))
    (function,) = [item for var, item in lowered.functions_items() if "conv" in var.name_hint]
    schedule = Schedule(function.with_attr("global_symbol", "main"))
    schedule.compute_inline(schedule.get_sblock("T_add"))
    for each in RegisterTiling(LANES)._inst.apply(schedule, schedule.get_sblock("convolution")):
        loops = [each.get(loop) for loop in each.get_loops(each.get_sblock("convolution"))]
        extents = [int(loop.extent) for loop in loops if int(loop.kind) == ForKind.UNROLLED]
        assert extents
        assert 5 not in extents


@pytest.mark.parametrize("channels", [16, 24, 10])
def test_other_convolutions_are_unchanged(monkeypatch: pytest.MonkeyPatch, channels: int) -> None:
    monkeypatch.setitem(CASES, "other", ((1, 6, 6, 4), (3, 3, 4, channels), [1, 1], [1, 1, 1, 1], [1, 1], 1))
    mod = network("other")
    tvm.ir.assert_structural_equal(lower_convolutions(mod), mod)


@pytest.mark.parametrize(("channels", "is_read"), [(3, True), (8, False)])
@pytest.mark.parametrize("rank", [1, 2, 3])
def test_an_image_of_few_channels_is_not_transposed(channels: int, is_read: bool, rank: int) -> None:
    convolution = getattr(relax.op.nn, f"conv{rank}d")
    sizes = (6, 7, 5)[:rank]

    def emit(builder: relax.BlockBuilder, x: relax.Var) -> Any:
        kernel = np.random.default_rng(1).standard_normal((16, channels, *[3] * rank)).astype(np.float32)
        return relax.op.nn.relu(builder.emit(convolution(x, relax.const(kernel), padding=[2] * rank + [1] * rank)))

    mod = build(emit, (2, channels, *sizes))
    lowered, _ = legalize(mod)
    functions = [var.name_hint for var, item in lowered.functions_items() if isinstance(item, tvm.tirx.PrimFunc)]
    # The output is transposed.
    assert sum("transpose" in name for name in functions) == (1 if is_read else 2)
    np.testing.assert_allclose(outputs(lowered)[0], outputs(mod)[0], rtol=1e-4, atol=1e-4)
