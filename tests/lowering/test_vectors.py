"""Vectorized loops whose extent does not divide their axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from tvm_gnn_cost.lowering.code_generation import build
from tvm_gnn_cost.lowering.vectors import more_vectors

TARGET = {"kind": "llvm", "mcpu": "x86-64-v3"}
ROWS = 3


def module(columns: int, lanes: int, value: Any) -> tvm.IRModule:
    """Rows of a function of a wider buffer and a bias, vectorized."""
    data = te.placeholder((ROWS, columns + 7), "float32", name="data")
    bias = te.placeholder((columns,), "float32", name="bias")
    output = te.compute((ROWS, columns), lambda m, n: value(data[m, n], bias[n], n), name="output")
    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": te.create_prim_func([data, bias, output])}))
    _, last = schedule.get_loops(schedule.get_sblock("output"))
    schedule.vectorize(schedule.split(last, [None, lanes])[1])
    return schedule.mod


@pytest.mark.parametrize("columns", [197, 31, 17, 16, 5])
@pytest.mark.parametrize("lanes", [16, 8, 3])
def test_nothing_is_written_after_a_row(columns: int, lanes: int) -> None:
    library = build(module(columns, lanes, lambda x, b, _: tirx.exp(x + b) + x), tvm.target.Target(TARGET))
    rng = np.random.default_rng(0)
    data, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((ROWS, columns + 7), (columns,)))
    # 64 values follow the last row.
    space = tvm.runtime.tensor(np.full(ROWS * columns + 64, 7, np.float32))
    output = space._create_view((ROWS, columns))
    library["main"](tvm.runtime.tensor(data), tvm.runtime.tensor(bias), output)
    np.testing.assert_allclose(
        output.numpy(), np.exp(data[:, :columns] + bias) + data[:, :columns], rtol=1e-5, atol=1e-6
    )
    np.testing.assert_array_equal(space.numpy()[ROWS * columns :], 7)


def lowered(mod: tvm.IRModule) -> str:
    target = tvm.target.Target(TARGET)
    return str(more_vectors()(tirx.transform.BindTarget(target.with_host(target))(mod)).script())


def test_a_partial_vector_is_masked() -> None:
    text = lowered(module(31, 16, lambda x, b, _: x * b))
    assert text.count("masked_load") == 2
    assert text.count("masked_store") == 1


def scheduled(arguments: list[Any]) -> tvm.IRModule:
    """A reduction whose result is initialized before the loop."""
    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": te.create_prim_func(arguments)}))
    block = schedule.get_sblock("output")
    schedule.decompose_reduction(block, schedule.get_loops(block)[-1])
    return schedule.mod


REDUCTIONS = {
    "sum": (lambda x, k: te.sum(x, axis=k), np.sum),
    "maximum": (lambda x, k: te.max(x, axis=k), np.max),
    "minimum": (lambda x, k: te.min(x, axis=k), np.min),
}


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("columns", [1, 7, 8, 9, 31, 32, 33, 64, 197, 513])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_reductions_accumulate_in_lanes(name: str, columns: int, dtype: str) -> None:
    reduce, expected = REDUCTIONS[name]
    data = te.placeholder((ROWS, columns), dtype, name="data")
    bias = te.placeholder((columns,), dtype, name="bias")
    scale = te.placeholder((ROWS,), dtype, name="scale")
    k = te.reduce_axis((0, columns), "k")
    output = te.compute((ROWS,), lambda m: reduce(data[m, k] * scale[m] + bias[k], k), name="output")
    mod = scheduled([data, bias, scale, output])
    if dtype == "float32":  # TVM reorders sums of integers
        assert ("lanes" in lowered(mod)) == (columns >= 8)
    rng = np.random.default_rng(0)
    arrays = [rng.uniform(-9, 9, shape).astype(dtype) for shape in ((ROWS, columns), (columns,), (ROWS,))]
    result = tvm.runtime.tensor(np.zeros(ROWS, dtype))
    build(mod, tvm.target.Target(TARGET))["main"](*(tvm.runtime.tensor(array) for array in arrays), result)
    np.testing.assert_allclose(
        result.numpy(), expected(arrays[0] * arrays[2][:, None] + arrays[1], axis=1), rtol=2e-5, atol=1e-4
    )


@pytest.mark.parametrize(
    "term",
    [
        lambda data, m, k: data[k, m],  # not adjacent
        lambda data, m, k: data[m, 63 - k],  # backwards
        lambda data, m, k: tirx.if_then_else(k < 60, data[m, k], 0.0),  # a branch guards the load
        lambda data, m, k: data[m, k // 2],
    ],
)
def test_other_reductions_are_left_to_tvm(term: Any) -> None:
    data = te.placeholder((64, 64), "float32", name="data")
    k = te.reduce_axis((0, 64), "k")
    output = te.compute((64,), lambda m: te.sum(term(data, m, k), axis=k), name="output")
    assert "lanes" not in lowered(scheduled([data, output]))


@pytest.mark.parametrize(
    "value",
    [
        lambda x, b, n: tirx.if_then_else(n < 5, x, b),
        lambda x, b, n: x * b * n.astype("float32"),
    ],
)
def test_other_loops_are_left_to_tvm(value: Any) -> None:
    mod = module(31, 16, value)
    library = build(mod, tvm.target.Target(TARGET))
    rng = np.random.default_rng(0)
    data, bias = (rng.standard_normal(shape).astype(np.float32) for shape in ((ROWS, 38), (31,)))
    output = tvm.runtime.tensor(np.zeros((ROWS, 31), np.float32))
    library["main"](tvm.runtime.tensor(data), tvm.runtime.tensor(bias), output)
    columns = np.arange(31, dtype=np.float32)
    expected = (
        np.where(columns < 5, data[:, :31], bias) if "if_then_else" in lowered(mod) else data[:, :31] * bias * columns
    )
    np.testing.assert_allclose(output.numpy(), expected, rtol=1e-6)


def test_gathered_lanes_are_left_to_tvm() -> None:
    data = te.placeholder((31, 3), "float32", name="data")
    output = te.compute((3, 31), lambda m, n: data[n, m], name="output")
    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": te.create_prim_func([data, output])}))
    _, last = schedule.get_loops(schedule.get_sblock("output"))
    schedule.vectorize(schedule.split(last, [None, 16])[1])
    assert "masked" not in lowered(schedule.mod)
    values = np.random.default_rng(0).standard_normal((31, 3)).astype(np.float32)
    result = tvm.runtime.tensor(np.zeros((3, 31), np.float32))
    build(schedule.mod, tvm.target.Target(TARGET))["main"](tvm.runtime.tensor(values), result)
    np.testing.assert_array_equal(result.numpy(), values.T)
