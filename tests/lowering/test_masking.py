"""Vectorized loops whose extent does not divide their axis."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from tvm_gnn_cost.lowering.code_generation import build
from tvm_gnn_cost.lowering.masking import masking

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
    return str(masking()(tirx.transform.BindTarget(target.with_host(target))(mod)).script())


def test_a_partial_vector_is_masked() -> None:
    text = lowered(module(31, 16, lambda x, b, _: x * b))
    assert text.count("masked_load") == 2
    assert text.count("masked_store") == 1


def test_functions_without_partial_vectors_are_unchanged() -> None:
    mod = module(32, 16, lambda x, b, _: x * b)
    tvm.ir.assert_structural_equal(masking()(mod), mod)


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
