from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from torch import nn
from tvm import relax
from tvm.relax import op
from tvm.relax.frontend.torch import from_exported_program

from tests.lowering.relax_modules import build, outputs, transposes, weights
from tvm_gnn_cost.lowering.constants import rearrange_constants
from tvm_gnn_cost.lowering.corrections import correct
from tvm_gnn_cost.lowering.layouts import convert_layouts, legalize
from tvm_gnn_cost.networks.convolutional import (
    efficientnet_small,
    mobilenet_v2,
    resnet_18,
    shufflenet_small,
    unet_small,
)
from tvm_gnn_cost.schedulers.meta_schedule.networks import extract_tasks
from tvm_gnn_cost.schedulers.meta_schedule.target import local_target


def imported(module: nn.Module, *inputs: torch.Tensor) -> tvm.IRModule:
    exported = torch.export.export(module.eval(), inputs)
    return correct(from_exported_program(exported, unwrap_unit_return_tuple=True))


def converted(mod: tvm.IRModule) -> tvm.IRModule:
    """The module as it is converted before it is lowered."""
    for item in (
        relax.transform.DecomposeOpsForInference(),
        rearrange_constants,
        relax.transform.CanonicalizeBindings(),
        convert_layouts,
    ):
        mod = item(mod)
    return mod


def check(mod: tvm.IRModule) -> tvm.IRModule:
    """The module converted; lowered, it computes the same."""
    result = converted(mod)
    relax.analysis.well_formed(result)
    expected = outputs(mod)
    for output, wanted in zip(outputs(legalize(mod)[0]), expected, strict=True):
        assert output.dtype == wanted.dtype
        np.testing.assert_allclose(output, wanted, rtol=1e-3, atol=1e-3)
    return result


def test_convolutions_are_in_nhwc_and_clips_are_fused_with_them() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU6(), nn.Conv2d(16, 32, 1), nn.Hardtanh(-1.0, 0.5))
    mod = imported(module, torch.randn(1, 3, 10, 10))
    check(mod)
    legal, _ = legalize(mod)
    names = [task.name for task in extract_tasks(legal, local_target())]
    # One transposes the output, and the others are a convolution each with all that follows it.
    assert sum("conv2d" in name for name in names) == 2
    assert all("clip" in name for name in names if "conv2d" in name)
    assert len(names) == 3
    assert "layout_free_buffers" in legal.script()


@pytest.mark.parametrize(
    ("network", "expected"),
    # Shuffled channels are transposed in the network; this pass leaves transposed convolutions as they are.
    [(resnet_18, 1), (mobilenet_v2, 1), (efficientnet_small, 1), (shufflenet_small, 3), (unet_small, 4)],
)
def test_whole_networks_are_transposed_at_their_input_alone(network: Callable[[], nn.Module], expected: int) -> None:
    assert transposes(converted(imported(network(), torch.randn(1, 3, 32, 32)))) == expected


def convolved(builder: relax.BlockBuilder, x: Any, channels: int = 8) -> Any:
    return builder.emit(op.nn.conv2d(x, weights(channels, int(x.ty.shape[1]), 3, 3), padding=(1, 1)))


def test_a_network_without_a_convolution_is_returned_as_it_is() -> None:
    mod = build(lambda _, x: op.permute_dims(op.permute_dims(x, (0, 2, 3, 1)), (0, 3, 1, 2)), (1, 4, 6, 6))
    assert convert_layouts(mod) is mod


def test_upsampled_branches_are_concatenated_with_their_channels_last() -> None:
    def emit(builder: relax.BlockBuilder, x: Any) -> Any:
        first = builder.emit(op.nn.relu(convolved(builder, x)))
        inner = convolved(builder, builder.emit(op.nn.max_pool2d(first, (2, 2), (2, 2))), 4)
        wide = builder.emit(op.image.resize2d(inner, (8, 8), method="linear"))
        return convolved(builder, builder.emit(op.concat([first, wide], 1)), 3)

    assert transposes(check(build(emit, (1, 3, 8, 8)))) == 2


def test_normalized_images_are_transposed_once() -> None:
    def emit(builder: relax.BlockBuilder, x: Any) -> Any:
        mean = relax.const(np.array([[[0.5]], [[0.25]], [[0.125]]]), "float32")
        image = builder.emit(op.divide(op.subtract(x, mean), mean))
        return builder.emit(op.mean(convolved(builder, image), [2, 3]))

    assert transposes(check(build(emit, (1, 3, 8, 8)))) == 1


def test_a_transposed_convolution_stays_and_its_neighbours_do_not() -> None:
    def emit(builder: relax.BlockBuilder, x: Any) -> Any:
        x = builder.emit(op.nn.relu(convolved(builder, x)))
        x = builder.emit(op.nn.conv2d_transpose(x, weights(8, 4, 2, 2), strides=(2, 2)))
        return convolved(builder, builder.emit(op.nn.relu(x)))

    assert transposes(check(build(emit, (1, 3, 8, 8)))) == 4


def test_a_value_is_transposed_once_for_all_that_read_it() -> None:
    def emit(builder: relax.BlockBuilder, x: Any) -> Any:
        y = builder.emit(op.nn.relu(convolved(builder, x)))
        # Products along the last axis read it as it is.
        products = [builder.emit(op.matmul(y, weights(8, n))) for n in (2, 3, 4)]
        return relax.Tuple([convolved(builder, y), convolved(builder, x), *products])

    results = check(build(emit, (1, 3, 8, 8)))
    assert transposes(results) == 1 + 1 + 2


def test_what_no_convolution_reads_or_makes_stays() -> None:
    def emit(builder: relax.BlockBuilder, x: Any, y: Any) -> Any:
        z = builder.emit(op.matmul(y, weights(6, 6)))
        for _ in range(3):
            z = builder.emit(op.nn.softmax(builder.emit(op.exp(z)), 1))
        return relax.Tuple([convolved(builder, x), builder.emit(op.matmul(z, weights(6, 6)))])

    assert transposes(check(build(emit, (1, 3, 8, 8), (1, 4, 6, 6)))) == 2


def test_stacks_that_are_summed() -> None:
    def emit(builder: relax.BlockBuilder, x: Any) -> Any:
        parts = [convolved(builder, x), convolved(builder, x)]
        return builder.emit(op.sum(builder.emit(op.stack(parts, 0)), [0]))

    mod = build(emit, (1, 3, 8, 8))
    with pytest.raises(tvm.error.InternalError, match="can't find S"):
        relax.transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "HWIO"]})(mod)
    assert transposes(check(mod)) == 2


def test_tuples_of_dropout() -> None:
    def emit(builder: relax.BlockBuilder, x: Any) -> Any:
        pair = builder.emit(op.nn.dropout(convolved(builder, x), 0.5))
        return convolved(builder, builder.emit(relax.TupleGetItem(pair, 0)))

    mod = build(emit, (1, 3, 8, 8))
    check(mod)
    assert transposes(converted(correct(mod))) == 2


def test_nested_tuples_and_outputs_in_both_forms() -> None:
    def emit(builder: relax.BlockBuilder, x: Any) -> Any:
        y = convolved(builder, x)
        parts = builder.emit(op.split(y, 2, 1))
        nested = builder.emit(relax.Tuple([y, relax.Tuple([x, parts])]))
        inner = builder.emit(relax.TupleGetItem(builder.emit(relax.TupleGetItem(nested, 1)), 1))
        return relax.Tuple([y, x, convolved(builder, builder.emit(relax.TupleGetItem(inner, 1)))])

    check(build(emit, (1, 3, 8, 8)))


def test_blocks_that_are_no_dataflow_functions_with_branches_and_casts() -> None:
    builder = relax.BlockBuilder()
    x, which = relax.Var("x", relax.TensorType((1, 3, 8, 8), "float32")), relax.Var("b", relax.TensorType((), "bool"))
    with builder.function("main", [x, which]):
        with builder.dataflow():
            y = builder.emit_output(op.nn.relu(convolved(builder, x)))
        z = builder.emit(op.exp(y))
        w = builder.match_cast(z, relax.TensorType((1, 8, 8, 8), "float32"))
        with builder.dataflow():
            v = builder.emit_output(op.add(convolved(builder, w), y))
        builder.emit_func_output(relax.Tuple([builder.emit(op.tanh(v)), v]))
    mod = builder.get()
    result = converted(mod)
    relax.analysis.well_formed(result)
    assert transposes(result) == 2


BRANCHES = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((1, 4, 8, 8), "float32"), w: R.Tensor((4, 4, 1, 1), "float32"), b: R.Tensor((), "bool")):
        y = R.nn.relu(R.nn.conv2d(x, w))
        if b:
            p = R.nn.conv2d(y, w)
            z = p
        else:
            q = R.exp(y)
            z = q
        return R.nn.conv2d(z, w)
"""

SYMBOLIC = """
@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor(("n", 4, 8, 8), "float32"), w: R.Tensor((4, 4, 1, 1), "float32")):
        with R.dataflow():
            y = R.nn.relu(R.nn.conv2d(x, w))
            z = R.reshape(y, R.shape([-1, 256]))
            R.output(z)
        return z
"""


def kernels() -> tvm.IRModule:
    """A function that calls a TensorIR function, and one without a convolution."""
    builder = relax.BlockBuilder()
    x, w = (relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in SHAPES.items())
    with builder.function("main", [x, w]):
        with builder.dataflow():
            y = builder.emit(op.nn.relu(builder.emit(op.nn.conv2d(x, w))))
            y = builder.emit_te(tvm.topi.add, y, y)
            y = builder.emit_output(op.nn.conv2d(y, w))
        builder.emit_func_output(y)
    z = relax.Var("z", relax.TensorType((2, 3), "float32"))
    with builder.function("other", [z]):
        builder.emit_func_output(builder.emit(op.exp(z)))
    return builder.get()


SHAPES = {"x": (1, 4, 8, 8), "w": (4, 4, 1, 1)}


@pytest.mark.parametrize(
    ("source", "expected"), [(BRANCHES, 5), (SYMBOLIC, 0), (None, 5)], ids=["branches", "symbolic", "kernels"]
)
def test_what_the_pass_does_not_know_stays(source: str | None, expected: int) -> None:
    mod = kernels() if source is None else tvm.script.from_source(source)
    result = converted(mod)
    relax.analysis.well_formed(result)
    assert transposes(result) == expected
    machines = [relax.VirtualMachine(tvm.compile(item, target="llvm"), tvm.cpu()) for item in (mod, result)]
    rng = np.random.default_rng(0)
    inputs: list[Any] = [rng.standard_normal(shape).astype(np.float32) for shape in SHAPES.values()]
    for more in ([True], [False]) if source == BRANCHES else ([],):
        tensors = [tvm.runtime.tensor(np.array(operand)) for operand in [*inputs, *more]]
        one, wanted = (machine["main"](*tensors).numpy() for machine in machines)
        np.testing.assert_allclose(one, wanted, rtol=1e-4, atol=1e-4)


ONE: list[Callable[[Any], Any]] = [
    lambda a: op.nn.conv2d(a, weights(8, 8, 3, 3), padding=(1, 1)),
    lambda a: op.nn.conv2d(a, weights(8, 1, 3, 3), padding=(1, 1), groups=8),
    lambda a: op.nn.conv2d_transpose(a, weights(8, 4, 2, 2), strides=(2, 2)),
    op.tanh,
    op.nn.relu,
    lambda a: op.maximum(op.minimum(a, relax.const(1.0)), relax.const(-1.0)),
    lambda a: op.nn.max_pool2d(a, (2, 2), (2, 2)),
    lambda a: op.nn.softmax(a, 1),
    lambda a: op.nn.softmax(a, 3),
    lambda a: op.matmul(a, weights(6, 6)),
    lambda a: op.permute_dims(a, (0, 1, 3, 2)),
    lambda a: op.permute_dims(op.exp(op.permute_dims(a, (0, 2, 3, 1))), (0, 3, 1, 2)),
    lambda a: op.permute_dims(op.permute_dims(a, (0, 3, 1, 2)), (0, 2, 3, 1)),
    lambda a: op.reshape(op.reshape(a, (2, 8, 36)), (2, 8, 6, 6)),
    lambda a: op.reshape(op.matmul(weights(8, 8), op.reshape(a, (2, 8, 36))), (2, 8, 6, 6)),
    lambda a: op.reshape(op.permute_dims(op.reshape(a, (2, 2, 4, 6, 6)), (0, 2, 1, 3, 4)), (2, 8, 6, 6)),
    lambda a: relax.TupleGetItem(op.split(a, 2, 1), 1),
    lambda a: relax.TupleGetItem(op.split(a, 2, 2), 0),
    lambda a: op.nn.pad(op.strided_slice(a, [2], [1], [5]), (0, 0, 0, 0, 1, 1, 0, 0)),
]
TWO: list[Callable[[Any, Any], Any]] = [
    op.add,
    lambda a, b: op.multiply(a, op.sigmoid(op.mean(b, [2, 3], keepdims=True))),
    lambda a, b: op.multiply(a, op.reshape(op.mean(b, [2, 3]), (2, 8, 1, 1))),
    lambda a, b: op.subtract(a, op.max(b, [0, 1])),
    lambda a, b: op.where(op.greater(a, b), a, b),
    lambda a, b: op.concat([a, b], 1),
    lambda a, b: op.sum(op.stack([a, b], 0), [0]),
]


def drawn(seed: int) -> tvm.IRModule:
    """A module of convolutions, elementwise operators and others, each on values drawn from those before it."""
    rng = random.Random(seed)

    def emit(builder: relax.BlockBuilder, x: Any, y: Any) -> Any:
        def fitted(value: Any) -> Any:
            """A value of the shape that all operators take."""
            channels, *size = (int(size) for size in value.ty.shape.values[1:])
            if channels != 8:
                value = builder.emit(op.nn.conv2d(value, weights(8, channels, 1, 1)))
            return value if size == [6, 6] else builder.emit(op.image.resize2d(value, (6, 6), method="linear"))

        values = [x, y]
        for _ in range(rng.randint(5, 11)):
            first, second = fitted(rng.choice(values)), fitted(rng.choice(values))
            result = rng.choice(ONE)(first) if rng.random() < 0.6 else rng.choice(TWO)(first, second)
            values.append(builder.emit(result))
        # Values far from 1 would hide differences in the others.
        return relax.Tuple([builder.emit(op.tanh(value)) for value in values[-3:]])

    return build(emit, (2, 8, 6, 6), (2, 3, 6, 6))


@pytest.mark.parametrize("seed", range(8))
def test_drawn_networks_compute_the_same(seed: int) -> None:
    mod = drawn(seed)
    result = converted(mod)
    relax.analysis.well_formed(result)
    for output, wanted in zip(outputs(result), outputs(mod), strict=True):
        np.testing.assert_allclose(output, wanted, rtol=1e-3, atol=1e-3)
    _check_no_pair_cancels(result)


def _check_no_pair_cancels(mod: tvm.IRModule) -> None:
    bound = {binding.var: binding.value for block in mod["main"].body.blocks for binding in block.bindings}

    def is_transpose(value: Any) -> bool:
        return isinstance(value, relax.Call) and value.op.name == "relax.permute_dims"

    for value in filter(is_transpose, bound.values()):
        assert not is_transpose(bound.get(value.args[0])), value
    made = [(value.args[0], tuple(value.attrs.axes)) for value in filter(is_transpose, bound.values())]
    assert len(made) == len(set(made))
