from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import tvm
from tvm import relax

from tvm_gnn_cost.lowering.corrections import correct
from tvm_gnn_cost.schedulers.meta_schedule.target import local_target

VALUES = np.arange(12, dtype=np.float32).reshape(3, 1, 4)


def build(emit: Callable[[relax.BlockBuilder, relax.Var], relax.Expr]) -> tvm.IRModule:
    builder, x = relax.BlockBuilder(), relax.Var("x", relax.TensorType(VALUES.shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            output = builder.emit_output(emit(builder, x))
        builder.emit_func_output(output)
    return builder.get()


def run(mod: tvm.IRModule) -> np.ndarray:
    compiled = tvm.compile(relax.get_pipeline("zero")(mod), local_target())
    return relax.VirtualMachine(compiled, tvm.cpu())["main"](tvm.runtime.tensor(VALUES)).numpy()


@pytest.mark.parametrize("axis", [0, 2, -1, None])
@pytest.mark.parametrize("index", [-1, [0, -2]])
def test_negative_indices_count_from_the_end_without_a_warning(
    index: int | list[int], axis: int | None, capfd: pytest.CaptureFixture[str]
) -> None:
    def take(_: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        tensor = x if axis is not None else relax.op.reshape(x, [12])
        return relax.op.take(tensor, relax.const(np.array(index), "int64"), axis)

    mod = build(take)
    before = str(mod)
    np.testing.assert_array_equal(run(correct(mod)), np.take(VALUES, index, axis))
    assert str(mod) == before
    assert "Warning" not in capfd.readouterr().err


def test_indices_outside_of_a_tensor_read_nothing_else() -> None:
    wild = relax.const(np.array([10**9]), "int64")
    found = run(correct(build(lambda _, x: relax.op.take(x, wild, 0))))
    assert np.isin(found, VALUES).all()


@pytest.mark.parametrize("axes", [[-2], [1], None])
def test_squeezed_axes_count_from_the_start(axes: list[int] | None) -> None:
    mod = correct(build(lambda _, x: relax.op.squeeze(x, axes)))
    # With a negative one this pass crashes.
    relax.transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "HWIO"]})(mod)
    np.testing.assert_array_equal(run(mod), VALUES[:, 0])


def test_known_sizes_are_constants() -> None:
    mod = correct(build(lambda builder, x: relax.op.shape_to_tensor(builder.emit(relax.op.shape_of(x)))))
    assert "shape_to_tensor" not in str(mod)
    assert run(mod).tolist() == [3, 1, 4]


@pytest.mark.parametrize("axes", [[-1], [-2, -1], [1, 2], [-3, -2, -1]])
def test_a_norm_over_several_axes_is_one_over_a_single_axis(axes: list[int]) -> None:
    rng = np.random.default_rng(0)
    shape = VALUES.shape[-len(axes) :]
    weights = [rng.standard_normal(shape).astype(np.float32) for _ in range(2)]
    constants = [relax.const(weight) for weight in weights]
    mod = correct(build(lambda _, x: relax.op.nn.layer_norm(x, *constants, axes=axes)))
    assert "axes=[-1]" in str(mod)
    over = tuple(range(-len(axes), 0))
    deviation = np.sqrt(VALUES.var(over, keepdims=True) + 1e-5)
    expected = (VALUES - VALUES.mean(over, keepdims=True)) / deviation * weights[0] + weights[1]
    np.testing.assert_allclose(run(mod), expected, atol=1e-5)
