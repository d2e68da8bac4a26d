from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
import torch
import tvm
from tvm import relax

from tvm_gnn_cost.lowering.corrections import correct
from tvm_gnn_cost.schedulers.meta_schedule.target import local_target

VALUES = np.arange(12, dtype=np.float32).reshape(3, 1, 4)


Values = npt.NDArray[np.float32]


def build(emit: Callable[[relax.BlockBuilder, relax.Var], relax.Expr], values: Values = VALUES) -> tvm.IRModule:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(values.shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            output = builder.emit_output(emit(builder, x))
        builder.emit_func_output(output)
    return builder.get()


def run(mod: tvm.IRModule, values: Values = VALUES) -> Values:
    compiled = tvm.compile(relax.get_pipeline("zero")(mod), local_target())
    result: Values = relax.VirtualMachine(compiled, tvm.cpu())["main"](tvm.runtime.tensor(values)).numpy()
    return result


def test_known_sizes_are_constants() -> None:
    mod = correct(build(lambda builder, x: relax.op.shape_to_tensor(builder.emit(relax.op.shape_of(x)))))
    assert "shape_to_tensor" not in str(mod)
    assert run(mod).tolist() == [3, 1, 4]


def test_dropout_gives_what_it_takes() -> None:
    mod = correct(build(lambda builder, x: relax.TupleGetItem(builder.emit(relax.op.nn.dropout(x, 0.5)), 0)))
    assert "dropout" not in str(mod)
    np.testing.assert_array_equal(run(mod), VALUES)


def test_the_mask_of_dropout_stays() -> None:
    mod = build(lambda builder, x: relax.TupleGetItem(builder.emit(relax.op.nn.dropout(x, 0.5)), 1))
    before = str(mod)
    np.testing.assert_array_equal(run(correct(mod)), np.ones_like(VALUES))
    assert str(mod) == before


@pytest.mark.parametrize("shape", [(8, 3, 2), (2, 12, 2, 1)])
def test_shuffled_pixels(shape: tuple[int, ...]) -> None:
    image = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    mod = correct(build(lambda _, x: relax.op.nn.pixel_shuffle(x, 2), image))
    expected = torch.nn.functional.pixel_shuffle(torch.from_numpy(image), 2)
    np.testing.assert_array_equal(run(mod, image), expected)


def test_repeated_values_are_broadcast() -> None:
    # As TVM lowers it, LLVM 22 makes a wrong program for AVX-512.
    values = np.arange(120, dtype=np.float32).reshape(2, 3, 4, 5)
    mod = correct(build(lambda _, x: relax.op.tile(x, [7, 6, 4, 2]), values))
    assert "R.tile" not in mod.script()
    np.testing.assert_array_equal(run(mod, values), np.tile(values, (7, 6, 4, 2)))
