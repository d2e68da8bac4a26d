from __future__ import annotations

import doctest
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, topi
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.tirx import ForKind

from tvm_gnn_cost.lowering import winograd_tiling as module
from tvm_gnn_cost.lowering.blocks import TILED
from tvm_gnn_cost.lowering.winograd import STAGE, transformed, winograd
from tvm_gnn_cost.lowering.winograd_tiling import WinogradTiling

SHAPE = (14, 12, 16)


def residual(image: Any, other: Any) -> Any:
    return topi.nn.relu(topi.add(image, other))


def reshaped(image: Any, other: Any) -> Any:
    """What follows the image has another shape than it."""
    return topi.reshape(topi.add(image, other), (14 * 12, 32))


def alone(image: Any, _other: Any) -> Any:
    return image


def task(size: int, act: Any, images: int = 1) -> tvm.IRModule:
    data = te.placeholder((images, *SHAPE), "float32", "data")
    other = te.placeholder((images, 14, 12, 32), "float32", "other")
    kernel = te.placeholder((size + 2, size + 2, 16, 32), "float32", "kernel")
    image = winograd(data, kernel, size, (1, 1, 1, 1))
    return tvm.IRModule({"main": te.create_prim_func([data, kernel, other, act(image, other)])})


def spaces(mod: tvm.IRModule, block: str = "products") -> list[Schedule]:
    schedule = Schedule(mod)
    return list(WinogradTiling(16, 2)._inst.apply(schedule, schedule.get_sblock(block)))


def run(mod: tvm.IRModule, size: int, images: int = 1) -> Any:
    rng = np.random.default_rng(0)
    weights = transformed(rng.standard_normal((3, 3, 16, 32)), size)
    inputs = [rng.standard_normal((images, *SHAPE)), weights, rng.standard_normal((images, 14, 12, 32))]
    shape = [int(size) for size in ms.arg_info.ArgInfo.from_entry_func(mod, False)[-1].shape]
    result = tvm.runtime.tensor(np.zeros(shape, np.float32))
    built = tvm.compile(mod, target="llvm")
    built["main"](*(tvm.runtime.tensor(operand.astype(np.float32)) for operand in inputs), result)
    return result.numpy()


def test_its_examples_hold() -> None:
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("act", [residual, reshaped, alone])
def test_every_program_computes_what_the_task_does(size: int, act: Any) -> None:
    mod = task(size, act)
    result = spaces(mod)
    assert 1 < len(result) <= 5
    expected = run(mod, size)
    assert np.abs(expected).max() > 0
    for schedule in result:
        np.testing.assert_allclose(run(schedule.mod, size), expected, atol=1e-3)


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("images", [3, 4])
def test_chunks_of_several_images(size: int, images: int) -> None:
    mod = task(size, residual, images)
    result = spaces(mod)
    assert 1 < len(result) <= 5
    expected = run(mod, size, images)
    for schedule in result:
        np.testing.assert_allclose(run(schedule.mod, size, images), expected, atol=1e-3)


def test_a_chunk_of_tiles_goes_from_the_image_to_the_outputs() -> None:
    for schedule in spaces(task(4, residual)):
        root = schedule.get_sblock("root")
        assert TILED in schedule.get(root).annotations
        stages = {schedule.get(block).name_hint: block for block in schedule.get_child_blocks(root)}
        # The padding is inlined, and so is the image into what follows it.
        assert set(stages) == {
            *("tiles", "inputs_rows", "inputs", "products", "outputs_rows", "outputs", "compute"),
        }
        first = {name: schedule.get(schedule.get_loops(block)[0]) for name, block in stages.items()}
        assert {int(loop.kind) for loop in first.values()} == {ForKind.PARALLEL}
        assert len({str(loop.loop_var) for loop in first.values()}) == 1
        # One chunk computes no tile twice and none in part.
        tiles = int(schedule.get(stages["products"]).iter_vars[2].dom.extent)
        assert tiles % int(first["products"].extent) == 0


def test_other_blocks_and_the_other_stages_are_left_alone() -> None:
    mod = task(2, residual)
    for block in ("inputs", "image", "T_add"):
        (schedule,) = spaces(mod, block)
        assert TILED not in schedule.get(schedule.get_sblock("root")).annotations
    whole = Schedule(mod)
    assert STAGE in whole.get(whole.get_sblock("inputs")).annotations


def test_register_tiles_fit_the_registers_and_chunks_the_cache() -> None:
    wide, narrow = WinogradTiling(16, 2)._inst, WinogradTiling(8, 2)._inst
    for vectors, pixels, chunk in wide._shapes(36 * 4, 196, 64, 64):
        assert (pixels + 1) * vectors < 32
        assert chunk % pixels == 0
        assert 196 % chunk == 0
    assert all((pixels + 1) * vectors < 16 for vectors, pixels, _ in narrow._shapes(36 * 4, 196, 64, 64))
    # A core with all of the work is no choice where two can share it.
    assert all(chunk < 50 for _, _, chunk in wide._shapes(36 * 4, 50, 128, 128)[:5])
