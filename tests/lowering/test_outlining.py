from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from tests.lowering.relax_modules import build as operators
from tests.lowering.relax_modules import weights
from tvm_gnn_cost.lowering.layouts import legalize
from tvm_gnn_cost.lowering.outlining import called, outline_small_kernels
from tvm_gnn_cost.schedulers.meta_schedule.compile import build
from tvm_gnn_cost.schedulers.meta_schedule.target import local_target


def module(emit: Callable[..., Any], *shapes: tuple[int, ...]) -> tvm.IRModule:
    """A module of what ``emit(builder, *inputs)`` returns, with one kernel for each operator."""
    return relax.transform.LegalizeOps()(operators(emit, *shapes))


def kernels(mod: tvm.IRModule) -> list[str]:
    """The kernels that the virtual machine calls, in order."""
    return [
        str(binding.value.args[0].name_hint)
        for block in mod["main"].body.blocks
        for binding in block.bindings
        if getattr(getattr(binding.value, "op", None), "name", "") == "relax.call_tir"
    ]


def outputs(mod: tvm.IRModule) -> list[Any]:
    machine = relax.VirtualMachine(build(mod, local_target()), tvm.cpu())
    rng = np.random.default_rng(0)
    drawn = (rng.standard_normal([int(n) for n in param.ty.shape]).astype("float32") for param in mod["main"].params)
    result = machine["main"](*map(tvm.runtime.tensor, drawn))
    return [item.numpy() for item in ([result] if isinstance(result, tvm.runtime.Tensor) else result)]


def assert_same(mod: tvm.IRModule, outlined: tvm.IRModule) -> None:
    for expected, found in zip(outputs(mod), outputs(outlined), strict=True):
        np.testing.assert_array_equal(found, expected)


def steps(builder: relax.BlockBuilder, state: Any, count: int) -> list[Any]:
    """The states of a recurrence; the weights of its steps are equal, and different objects."""
    states = []
    for _ in range(count):
        product = builder.emit(relax.op.matmul(state, weights(64, 64)))
        state = builder.emit(relax.op.tanh(product))
        states.append(state)
    return states


def test_the_steps_of_a_recurrence_are_one_function_that_calls_the_kernels() -> None:
    mod = module(lambda builder, x: steps(builder, x, 10)[-1], (1, 64))
    outlined = outline_small_kernels(mod)
    assert kernels(outlined) == ["sequence_of_20_kernels"]
    (call,) = (function for var, function in outlined.functions_items() if var.name_hint == "sequence_of_20_kernels")
    assert called(call) == ["matmul", "tir_tanh"] * 10
    # The input, the weights of all steps once, and the output.
    assert len(call.params) == 3
    assert_same(mod, outlined)


def test_values_that_are_read_outside_are_results() -> None:
    def emit(builder: relax.BlockBuilder, x: Any) -> Any:
        states = steps(builder, x, 3)
        large = builder.emit(relax.op.broadcast_to(states[1], (4096, 64)))
        return relax.Tuple([states[0], states[2], builder.emit(relax.op.exp(large))])

    mod = module(emit, (1, 64))
    outlined = outline_small_kernels(mod)
    assert kernels(outlined) == ["sequence_of_6_kernels", "broadcast_to", "tir_exp"]
    assert_same(mod, outlined)


def test_a_large_kernel_stays_a_call_of_the_virtual_machine() -> None:
    def emit(builder: relax.BlockBuilder, x: Any) -> Any:
        large = builder.emit(relax.op.matmul(steps(builder, x, 1)[-1], weights(64, 4096)))
        return builder.emit(relax.op.sum(builder.emit(relax.op.exp(builder.emit(relax.op.abs(large)))), axis=[1]))

    mod = module(emit, (1, 64))
    outlined = outline_small_kernels(mod)
    assert kernels(outlined) == ["sequence_of_2_kernels", "matmul1", "sequence_of_3_kernels"]
    assert_same(mod, outlined)


def test_values_of_a_few_bytes_stay_aligned() -> None:
    def emit(builder: relax.BlockBuilder, x: Any) -> Any:
        for _ in range(3):
            x = builder.emit(relax.op.exp(builder.emit(relax.op.sin(x))))
        return x

    mod = module(emit, (3,))
    outlined = outline_small_kernels(mod)
    assert kernels(outlined) == ["sequence_of_6_kernels"]
    assert_same(mod, outlined)


def test_reshapes_cost_nothing_at_the_ends_of_a_sequence() -> None:
    def emit(builder: relax.BlockBuilder, x: Any) -> Any:
        x = builder.emit(relax.op.reshape(x, (1, 64)))
        inner = builder.emit(relax.op.reshape(steps(builder, x, 1)[-1], (64,)))
        return builder.emit(relax.op.reshape(builder.emit(relax.op.sin(inner)), (4, 16)))

    mod = module(emit, (8, 8))
    outlined = outline_small_kernels(mod)
    assert kernels(outlined) == ["reshape", "sequence_of_4_kernels", "reshape2"]
    assert_same(mod, outlined)


def test_slices_of_consecutive_elements_are_pointers() -> None:
    def emit(builder: relax.BlockBuilder, x: Any) -> Any:
        states = [builder.emit(relax.op.sin(x))]
        for step in range(4):
            row = builder.emit(relax.op.strided_slice(states[0], [0], [step], [step + 1]))
            states.append(builder.emit(relax.op.add(row, builder.emit(relax.op.cos(states[-1])))))
        return builder.emit(relax.op.add(states[2], states[-1]))

    mod = module(emit, (4, 16))
    outlined = outline_small_kernels(mod)
    (name,) = kernels(outlined)
    (inner,) = (called(function) for var, function in outlined.functions_items() if var.name_hint == name)
    assert not [kernel for kernel in inner if "slice" in kernel]
    assert_same(mod, outlined)


@pytest.mark.parametrize(
    ("size", "begin", "end"),
    [((4, 20), [1, 0], [2, 20]), ((4, 32), [0, 16], [4, 32]), ((64,), [3], [19])],
    ids=["not aligned", "not consecutive", "within a row"],
)
def test_other_slices_are_copied(size: tuple[int, ...], begin: list[int], end: list[int]) -> None:
    def emit(builder: relax.BlockBuilder, x: Any) -> Any:
        part = builder.emit(relax.op.strided_slice(builder.emit(relax.op.sin(x)), list(range(len(size))), begin, end))
        return builder.emit(relax.op.cos(part))

    mod = module(emit, size)
    outlined = outline_small_kernels(mod)
    (name,) = kernels(outlined)
    (inner,) = (called(function) for var, function in outlined.functions_items() if var.name_hint == name)
    assert len(inner) == 3
    assert_same(mod, outlined)


@pytest.mark.parametrize("count", [0, 1])
def test_there_is_no_sequence_of_one_kernel(count: int) -> None:
    mod = module(lambda builder, x: builder.emit(relax.op.tanh(x)) if count else x, (1, 64))
    assert kernels(outline_small_kernels(mod)) == ["tir_tanh"] * count


def test_a_network_in_another_layout_computes_the_same() -> None:
    def emit(builder: relax.BlockBuilder, x: Any) -> Any:
        for _ in range(3):
            x = builder.emit(relax.op.nn.relu(builder.emit(relax.op.nn.conv2d(x, weights(8, 8, 3, 3), padding=1))))
        return builder.emit(relax.op.nn.softmax(builder.emit(relax.op.mean(x, axis=[2, 3]))))

    mod, _ = legalize(operators(emit, (1, 8, 6, 6)))
    outlined = outline_small_kernels(mod)
    assert len(kernels(outlined)) < len(kernels(mod))
    assert_same(mod, outlined)
