from __future__ import annotations

import doctest
import gc
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, topi
from tvm.ir.utils import derived_object
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.tirx import ForKind

from tvm_gnn_cost.lowering import design_space as module
from tvm_gnn_cost.lowering.blocks import FREE, TILED, LaneRule, is_spatial
from tvm_gnn_cost.lowering.design_space import RegisterTiling, Tile, UnlessTiled, design_space
from tvm_gnn_cost.lowering.vectors import vector_lanes
from tvm_gnn_cost.schedulers.meta_schedule.preload import import_tensor_intrin

LANES = 16


def convolution(width: int = 14, channels: int = 32, act: Any = topi.nn.relu) -> tvm.IRModule:
    """3x3, in NHWC, padded, with bias and an activation."""
    data = te.placeholder((1, width, width, 8), "float32", "data")
    weight = te.placeholder((3, 3, 8, channels), "float32", "weight")
    bias = te.placeholder((1, 1, 1, channels), "float32", "bias")
    sums = topi.nn.conv2d_nhwc(data, weight, 1, 1, 1)
    return tvm.IRModule({"main": te.create_prim_func([data, weight, bias, act(topi.add(sums, bias))])})


def silu(x: Any) -> Any:
    return topi.multiply(x, topi.sigmoid(x))


def product(rows: int, columns: int, transposed: bool = False) -> tvm.IRModule:
    left = te.placeholder((rows, 24), "float32", "left")
    right = te.placeholder((columns, 24) if transposed else (24, columns), "float32", "right")
    out = topi.nn.matmul(left, right, transpose_b=transposed)
    # The operands are activations; TVM's expression takes the second for a weight.
    return tvm.IRModule({"main": te.create_prim_func([left, right, out]).with_attr(FREE, [])})


def reshaped_product() -> tvm.IRModule:
    """What follows the sum has another shape than it."""
    left, right = te.placeholder((6, 24), "float32", "left"), te.placeholder((24, 32), "float32", "right")
    out = topi.reshape(topi.nn.matmul(left, right), (4, 48))
    return tvm.IRModule({"main": te.create_prim_func([left, right, out])})


def spaces(mod: tvm.IRModule) -> list[Schedule]:
    """The tilings of its sum of products, after TVM has inlined what it inlines."""
    schedule = Schedule(mod)
    if any(schedule.get(block).name_hint == "T_add" for block in blocks(schedule)):
        schedule.compute_inline(schedule.get_sblock("T_add"))
    reduction = next(block for block in blocks(schedule) if not is_spatial(schedule, block))
    return list(RegisterTiling(LANES)._inst.apply(schedule, reduction))


def blocks(schedule: Schedule) -> list[Any]:
    return list(schedule.get_child_blocks(schedule.get_sblock("root")))


def candidates(mod: tvm.IRModule, count: int) -> list[ms.MeasureCandidate]:
    import_tensor_intrin()
    target = tvm.target.Target({"kind": "llvm", "num-cores": 2})
    context = ms.TuneContext(
        mod,
        target=target,
        space_generator=design_space(target),
        search_strategy="replay-trace",
        task_name="task",
        rand_state=1,
        num_threads=1,
    )
    context.pre_tuning(count, count)
    return list(context.generate_measure_candidates())


def test_its_examples_hold() -> None:
    assert doctest.testmod(module).failed == 0


def test_the_lanes_are_those_of_the_targets_registers() -> None:
    def lanes(cpu: str) -> int:
        return vector_lanes(tvm.target.Target({"kind": "llvm", "mcpu": cpu}))

    assert (lanes("skylake-avx512"), lanes("haswell"), lanes("core2")) == (16, 8, 4)


def test_a_tile_lies_in_registers_through_the_whole_reduction() -> None:
    for schedule in spaces(convolution()):
        (sums,) = [block for block in blocks(schedule) if not is_spatial(schedule, block)]
        kinds = [int(schedule.get(loop).kind) for loop in schedule.get_loops(sums)]
        assert kinds[0] == ForKind.PARALLEL
        assert kinds[-1] == ForKind.VECTORIZED
        # Nothing but unrolled loops between the reduction and the vector.
        last_serial = max(i for i, kind in enumerate(kinds) if kind == ForKind.SERIAL)
        assert set(kinds[last_serial + 1 : -1]) == {ForKind.UNROLLED}
        tile = np.prod([int(schedule.get(loop).extent) for loop in schedule.get_loops(sums)[last_serial + 1 :]])
        assert tile <= 28 * LANES
        # What follows the sum is computed tile by tile, with indices that are constants.
        assert TILED in schedule.get(schedule.get_sblock("root")).annotations


def test_widths_orders_and_places_of_the_padding_are_all_offered() -> None:
    # Two vectors or one, two orders, padding before everything or for each chunk.
    assert len(spaces(convolution(channels=32))) == 2 * 2 * 2
    # 24 channels are three vectors of 8, or one.
    rule = RegisterTiling(LANES)._inst
    assert rule._tiles(24) == [Tile(3, 8), Tile(1, 8)]
    assert rule._tiles(192) == [Tile(6, 16), Tile(4, 16), Tile(3, 16)]
    assert rule._tiles(35) == [Tile(1, 35)]


def test_a_single_row_has_wider_tiles() -> None:
    widths = {
        np.prod([int(schedule.get(loop).extent) for loop in schedule.get_loops(block)[-2:]])
        for schedule in spaces(product(1, 768))
        for block in blocks(schedule)
        if not is_spatial(schedule, block)
    }
    assert widths == {16 * 16, 12 * 16, 8 * 16}


def test_an_axis_that_vectors_do_not_divide_is_padded() -> None:
    rule = RegisterTiling(LANES)._inst
    assert rule._padded(192) == []
    # 197 columns are 13 vectors, the last one with 5 lanes, or 7 pairs of vectors.
    assert rule._padded(197) == [Tile(1, 16, padded=True), Tile(2, 16, padded=True)]
    assert rule._padded(31) == [Tile(2, 16, padded=True), Tile(1, 16, padded=True)]
    padded = [schedule for schedule in spaces(product(5, 31)) if "_pad" in str(schedule.mod)]
    # Two widths, two orders, packing before everything or for each chunk, with one thread or all.
    assert len(padded) == 2 * 2 * 2 * 2
    # A weight cannot be packed twice.
    weight = product(5, 31)
    weight.update_func(weight.get_global_var("main"), weight["main"].with_attr(FREE, [1]))
    assert not [schedule for schedule in spaces(weight) if "_pad" in str(schedule.mod)]


def test_an_operand_that_is_not_contiguous_is_packed_into_panels() -> None:
    for schedule in spaces(product(4, 32, transposed=True)):
        (sums,) = [block for block in blocks(schedule) if not is_spatial(schedule, block)]
        panels = schedule.get(sums).reads[1].source
        assert [int(size) for size in panels.shape][-1] in (16, 32)


@derived_object
class _Failing(LaneRule):
    """Changes the schedule before it raises an error that is not one of schedules."""

    def apply(self, sch: Schedule, block: Any) -> list[Schedule]:
        sch.parallel(sch.get_loops(block)[0])
        raise KeyError("a buffer")


def test_a_rule_that_raises_leaves_the_function_to_the_others() -> None:
    schedule = Schedule(product(6, 32))
    (block,) = blocks(schedule)
    (left,) = UnlessTiled(_Failing(LANES))._inst.apply(schedule, block)
    tvm.ir.assert_structural_equal(left.mod, product(6, 32))
    assert len(UnlessTiled(RegisterTiling(LANES))._inst.apply(left, block)) > 1


def test_other_blocks_are_left_to_tvm() -> None:
    pool = te.placeholder((1, 8, 8, 16), "float32", "data")
    pooled = topi.nn.pool2d(pool, (2, 2), (2, 2), (1, 1), (0, 0, 0, 0), "max", layout="NHWC")
    (schedule,) = spaces(tvm.IRModule({"main": te.create_prim_func([pool, pooled])}))
    assert TILED not in schedule.get(schedule.get_sblock("root")).annotations


@pytest.mark.parametrize(
    "mod",
    [
        *(convolution(14, 32), convolution(17, 24), convolution(13, 16, act=silu), convolution(7, 5)),
        *(product(5, 40), product(1, 96), product(4, 32, transposed=True), reshaped_product()),
        *(product(5, 31), product(19, 37, transposed=True)),
    ],
)
def test_candidates_compute_what_the_task_does(mod: tvm.IRModule) -> None:
    rng = np.random.default_rng(0)
    shapes = [[int(size) for size in item.shape] for item in ms.arg_info.ArgInfo.from_prim_func(mod["main"])]
    *inputs, _ = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]

    def run(program: tvm.IRModule) -> np.ndarray[Any, Any]:
        built = tvm.compile(program, target="llvm")
        arguments = [tvm.runtime.tensor(operand) for operand in inputs]
        output = tvm.runtime.tensor(np.zeros(shapes[-1], np.float32))
        built["main"](*arguments, output)
        result: np.ndarray[Any, Any] = output.numpy()
        return result

    expected = run(mod)
    assert np.abs(expected).max() > 0
    for candidate in candidates(mod, 6):
        np.testing.assert_allclose(run(candidate.sch.mod), expected, rtol=1e-4, atol=1e-4)


def test_a_design_space_is_copied_when_only_metaschedule_holds_its_rules() -> None:
    import_tensor_intrin()
    space = design_space(tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3"}))
    gc.collect()
    copied = space.clone()
    gc.collect()
    assert len(copied.clone().sch_rules) == len(space.sch_rules)
