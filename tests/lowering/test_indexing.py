from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import tvm
from tvm import relax
from tvm.relax import op

from tests.lowering.relax_modules import build
from tvm_gnn_cost.lowering.layouts import lower_operators
from tvm_gnn_cost.schedulers.meta_schedule.networks import extract_tasks
from tvm_gnn_cost.schedulers.meta_schedule.target import local_target

Array = npt.NDArray[Any]
DATA = np.random.default_rng(0).standard_normal((4, 5, 6)).astype(np.float32)
UPDATES = np.random.default_rng(1).standard_normal((4, 5, 6)).astype(np.float32)


def indices(*shape: int, low: int = -4, high: int = 4) -> Array:
    return np.random.default_rng(sum(shape)).integers(low, high, shape)


def const(values: Array, dtype: str = "int64") -> relax.Expr:
    return relax.const(values.astype(dtype), dtype)


def run(emit: Callable[[Any], Any]) -> Array:
    mod = lower_operators(build(lambda _, x: emit(x), DATA.shape))
    machine = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
    result: Array = machine["main"](tvm.runtime.tensor(DATA)).numpy()
    return result


@pytest.mark.parametrize("dtype", ["int64", "int32", "int8"])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gathered_elements(axis: int, dtype: str) -> None:
    at = indices(4, 5, 6)
    result = run(lambda x: op.gather_elements(x, const(at, dtype), axis))
    np.testing.assert_array_equal(result, np.take_along_axis(DATA, at, axis))


def test_gathered_slices_and_batches() -> None:
    at = indices(2, 3, 2)
    np.testing.assert_array_equal(run(lambda x: op.gather_nd(x, const(at))), DATA[at[..., 0], at[..., 1]])
    at = indices(4, 7, 1)
    expected = np.stack([DATA[n][at[n, :, 0]] for n in range(4)])
    np.testing.assert_array_equal(run(lambda x: op.gather_nd(x, const(at), 1)), expected)


@pytest.mark.parametrize("dtype", ["int64", "int32"])
def test_indexed_tensors(dtype: str) -> None:
    rows, columns = indices(3, 1), indices(2)
    results = run(lambda x: op.index_tensor(x, [const(rows), const(columns, dtype)]))
    np.testing.assert_array_equal(results, DATA[rows, columns])


@pytest.mark.parametrize("accumulate", [False, True])
def test_put_values(accumulate: bool) -> None:
    at = [indices(4, 1), indices(3), indices(4, 3)]
    at = at if accumulate else [np.arange(4).reshape(4, 1) - 4, indices(3), indices(4, 3)]
    values = UPDATES[0, :4, :3]
    result = run(lambda x: op.index_put(x, tuple(map(const, at)), relax.const(values), accumulate))
    wanted = torch.from_numpy(DATA).index_put(tuple(map(torch.from_numpy, at)), torch.from_numpy(values), accumulate)
    np.testing.assert_allclose(result, wanted, rtol=1e-6)


def test_one_value_is_put_everywhere() -> None:
    at = [indices(50), indices(50), indices(50)]
    result = run(lambda x: op.index_put(x, tuple(map(const, at)), relax.const(np.full(1, 2.0, np.float32)), True))
    expected = DATA.copy()
    np.add.at(expected, tuple(at), 2.0)
    np.testing.assert_allclose(result, expected, rtol=1e-6)


@pytest.mark.parametrize("reduction", ["update", "add", "mul", "min", "max"])
def test_scattered_slices(reduction: str) -> None:
    at = np.array([[-4, 1], [1, -2], [2, 0]])
    result = run(lambda x: op.scatter_nd(x, const(at), relax.const(UPDATES[0, :3]), reduction))
    assert_scattered(result, reduction, UPDATES[0, :3], tuple(at.T))


def assert_scattered(output: Array, reduction: str, updates: Array, places: Any) -> None:
    expected = DATA.copy()
    if reduction == "update":
        expected[places] = updates
    else:
        function: Any = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}[reduction]
        function.at(expected, places, updates)
    np.testing.assert_allclose(output, expected, rtol=1e-6)


@pytest.mark.parametrize("shape", [(4, 5, 6), (4, 3, 6), (2, 5, 3)])
@pytest.mark.parametrize("reduction", ["update", "add"])
def test_scattered_elements(reduction: str, shape: tuple[int, ...]) -> None:
    """Fewer of them than elements in the data too."""
    at = np.stack([np.random.default_rng(0).permutation(5)[: shape[1]]] * shape[2], 1) - 5
    at = np.broadcast_to(at, shape).copy()
    updates = UPDATES[tuple(map(slice, shape))]
    result = run(lambda x: op.scatter_elements(x, const(at), relax.const(updates), 1, reduction))
    places = np.ogrid[tuple(map(slice, shape))]
    assert_scattered(result, reduction, updates, (places[0], at, places[2]))


WILD: list[Callable[[Any, Any], Any]] = [
    lambda x, at: op.take(x, at, 0),
    lambda x, at: op.gather_elements(x, at, 1),
    lambda x, at: op.gather_nd(x, op.reshape(at, (60, 2))),
    lambda x, at: op.index_tensor(x, [op.reshape(at, (120,))]),
    lambda x, at: op.index_put(x, (op.reshape(at, (120,)),) * 3, op.reshape(x, (120,)), True),
    lambda x, at: op.scatter_nd(x, op.reshape(at, (40, 3)), relax.const(UPDATES.reshape(120)[:40])),
    lambda x, at: op.scatter_elements(x, at, x, 1),
    lambda x, at: op.reverse_sequence(x, op.take(op.reshape(at, (120,)), relax.const(np.arange(4)), 0), 1, 0),
]


@pytest.mark.parametrize("operator", WILD)
def test_no_task_leaves_its_tensors(operator: Callable[[Any, Any], Any]) -> None:
    """Each kernel alone, with any indices: what it gives is made of what it takes."""
    x, at = (
        relax.Var("x", relax.TensorType(DATA.shape, "float32")),
        relax.Var("at", relax.TensorType(DATA.shape, "int64")),
    )
    builder = relax.BlockBuilder()
    with builder.function("main", [x, at]):
        with builder.dataflow():
            y = builder.emit_output(operator(x, at))
        builder.emit_func_output(y)
    mod = relax.get_pipeline("zero")(lower_operators(builder.get()))
    assert extract_tasks(mod, local_target())
    machine = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
    wild = np.random.default_rng(0).integers(-(2**62), 2**62, DATA.shape)
    result = machine["main"](tvm.runtime.tensor(DATA), tvm.runtime.tensor(wild)).numpy()
    assert np.isfinite(result).all()
    assert np.abs(result).max() <= 120 * max(np.abs(DATA).max(), np.abs(UPDATES).max())


@pytest.mark.parametrize("axis", [0, 2, -1, None])
@pytest.mark.parametrize("index", [-1, [0, -2]])
def test_taken_elements_count_from_the_end_without_a_warning(
    index: int | list[int], axis: int | None, capfd: pytest.CaptureFixture[str]
) -> None:
    def take(x: Any) -> Any:
        return op.take(x if axis is not None else op.reshape(x, [120]), relax.const(np.array(index), "int64"), axis)

    np.testing.assert_array_equal(run(take), np.take(DATA, index, axis))
    assert "Warning" not in capfd.readouterr().err
