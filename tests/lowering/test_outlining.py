from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import psutil
import pytest
import tvm
from tvm import relax

from tests.lowering.relax_modules import build as operators
from tests.lowering.relax_modules import outputs, weights
from tvm_gnn_cost.lowering.kernels import kernel_calls
from tvm_gnn_cost.lowering.layouts import legalize
from tvm_gnn_cost.lowering.outlining import called, outline_small_kernels
from tvm_gnn_cost.schedulers.meta_schedule.compile import build
from tvm_gnn_cost.schedulers.meta_schedule.target import local_target


def module(emit: Callable[..., Any], *shapes: tuple[int, ...]) -> tvm.IRModule:
    """A module of what ``emit(builder, *inputs)`` returns, with one kernel for each operator."""
    return relax.transform.LegalizeOps()(operators(emit, *shapes))


def kernels(mod: tvm.IRModule) -> list[str]:
    """The kernels that the virtual machine calls, in order."""
    return [str(call.args[0].name_hint) for call in kernel_calls(mod)]


def outlined(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with sequences, which computes the same."""
    changed = outline_small_kernels(mod)
    first, second = (outputs(one, build(one, local_target())) for one in (mod, changed))
    for expected, found in zip(first, second, strict=True):
        np.testing.assert_array_equal(found, expected)
    return changed


def calls_of_the_sequence(mod: tvm.IRModule) -> list[str]:
    """The kernels that the only sequence of a module calls."""
    (name,) = kernels(mod)
    return called(mod[name])


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
    changed = outlined(mod)
    assert kernels(changed) == ["sequence_of_20_kernels"]
    assert calls_of_the_sequence(changed) == ["matmul", "tir_tanh"] * 10
    # The input, the weights of all steps once, and the output.
    assert len(changed["sequence_of_20_kernels"].params) == 3


def test_values_that_are_read_outside_are_results() -> None:
    def emit(builder: relax.BlockBuilder, x: Any) -> Any:
        states = steps(builder, x, 3)
        large = builder.emit(relax.op.broadcast_to(states[1], (4096, 64)))
        return relax.Tuple([states[0], states[2], builder.emit(relax.op.exp(large))])

    assert kernels(outlined(module(emit, (1, 64)))) == ["sequence_of_6_kernels", "broadcast_to", "tir_exp"]


def test_a_large_kernel_stays_a_call_of_the_virtual_machine() -> None:
    def emit(builder: relax.BlockBuilder, x: Any) -> Any:
        large = builder.emit(relax.op.matmul(steps(builder, x, 1)[-1], weights(64, 4096)))
        return builder.emit(relax.op.sum(builder.emit(relax.op.exp(builder.emit(relax.op.abs(large)))), axis=[1]))

    assert kernels(outlined(module(emit, (1, 64)))) == ["sequence_of_2_kernels", "matmul1", "sequence_of_3_kernels"]


def test_values_of_a_few_bytes_stay_aligned() -> None:
    def emit(builder: relax.BlockBuilder, x: Any) -> Any:
        for _ in range(3):
            x = builder.emit(relax.op.exp(builder.emit(relax.op.sin(x))))
        return x

    assert kernels(outlined(module(emit, (3,)))) == ["sequence_of_6_kernels"]


def test_reshapes_cost_nothing_at_the_ends_of_a_sequence() -> None:
    def emit(builder: relax.BlockBuilder, x: Any) -> Any:
        x = builder.emit(relax.op.reshape(x, (1, 64)))
        inner = builder.emit(relax.op.reshape(steps(builder, x, 1)[-1], (64,)))
        return builder.emit(relax.op.reshape(builder.emit(relax.op.sin(inner)), (4, 16)))

    assert kernels(outlined(module(emit, (8, 8)))) == ["reshape", "sequence_of_4_kernels", "reshape2"]


def test_slices_of_consecutive_elements_are_pointers() -> None:
    def emit(builder: relax.BlockBuilder, x: Any) -> Any:
        states = [builder.emit(relax.op.sin(x))]
        for step in range(4):
            row = builder.emit(relax.op.strided_slice(states[0], [0], [step], [step + 1]))
            states.append(builder.emit(relax.op.add(row, builder.emit(relax.op.cos(states[-1])))))
        return builder.emit(relax.op.add(states[2], states[-1]))

    inner = calls_of_the_sequence(outlined(module(emit, (4, 16))))
    assert not [kernel for kernel in inner if "slice" in kernel]


@pytest.mark.parametrize(
    ("size", "begin", "end"),
    [((4, 20), [1, 0], [2, 20]), ((4, 32), [0, 16], [4, 32]), ((64,), [3], [19])],
    ids=["not aligned", "not consecutive", "within a row"],
)
def test_other_slices_are_copied(size: tuple[int, ...], begin: list[int], end: list[int]) -> None:
    def emit(builder: relax.BlockBuilder, x: Any) -> Any:
        part = builder.emit(relax.op.strided_slice(builder.emit(relax.op.sin(x)), list(range(len(size))), begin, end))
        return builder.emit(relax.op.cos(part))

    assert len(calls_of_the_sequence(outlined(module(emit, size)))) == 3


def test_tensors_without_elements_are_no_part_of_a_sequence() -> None:
    def emit(builder: relax.BlockBuilder, x: Any) -> Any:
        empty = builder.emit(relax.op.strided_slice(x, [0], [4], [9]))
        doubled = builder.emit(relax.op.add(empty, empty))
        return relax.Tuple([builder.emit(relax.op.exp(doubled)), steps(builder, x, 2)[-1]])

    changed = outlined(module(emit, (4, 64)))
    assert called(changed["sequence_of_4_kernels"]) == ["matmul", "tir_tanh"] * 2
    assert "tir_exp" in kernels(changed)


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
    assert len(kernels(outlined(mod))) < len(kernels(mod))


def test_kernels_free_their_own_buffers() -> None:
    def emit(builder: relax.BlockBuilder, x: Any) -> Any:
        return builder.emit(relax.op.nn.softmax(builder.emit(relax.op.nn.softmax(x))))

    changed = outlined(module(emit, (32, 128)))
    assert kernels(changed) == ["sequence_of_2_kernels"]
    machine = relax.VirtualMachine(build(changed, local_target()), tvm.cpu())
    x = tvm.runtime.tensor(np.ones((32, 128), np.float32))
    process, before = psutil.Process(), 0
    for run in range(4000):
        machine["main"](x)
        # The first runs allocate what all of them use.
        before = process.memory_info().rss if run == 1000 else before
    # Each softmax has 16 KiB of exponentials.
    assert process.memory_info().rss - before < 2**23
