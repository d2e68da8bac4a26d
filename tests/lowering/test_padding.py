"""Weights with columns of zeros."""

from __future__ import annotations

import doctest
from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from tvm_gnn_cost.lowering import padding as module
from tvm_gnn_cost.lowering.layouts import legalize
from tvm_gnn_cost.lowering.padding import pad_weights, padded_columns


def test_its_examples_hold() -> None:
    assert doctest.testmod(module).failed == 0


def network(columns: int, weights: Any = None, dtype: str = "float32") -> tvm.IRModule:
    """A product with a bias and ReLU."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType((2, 5, 24), dtype))
    rng = np.random.default_rng(0)
    with builder.function("main", [x]):
        with builder.dataflow():
            matrix = rng.standard_normal((24, columns)).astype(dtype) if weights is None else weights
            product = builder.emit(relax.op.matmul(x, relax.const(matrix)))
            bias = relax.const(rng.standard_normal(columns).astype(dtype))
            result = builder.emit_output(relax.op.nn.relu(relax.op.add(product, bias)))
        builder.emit_func_output(result)
    return builder.get()


def outputs(mod: tvm.IRModule) -> Any:
    x = np.random.default_rng(1).standard_normal((2, 5, 24)).astype(np.float32)
    machine = relax.VirtualMachine(tvm.compile(mod, tvm.target.Target("llvm")), tvm.cpu())
    return machine["main"](tvm.runtime.tensor(x)).numpy()


@pytest.mark.parametrize("columns", [31, 100, 197])
def test_a_padded_product_is_a_function_with_its_epilogue(columns: int) -> None:
    mod = network(columns)
    lowered, _ = legalize(mod)
    functions = [function for _, function in lowered.functions_items() if isinstance(function, tvm.tirx.PrimFunc)]
    assert len(functions) == 1
    assert [int(size) for size in functions[0].params[1].shape] == [24, padded_columns(columns)]
    assert [int(i) for i in functions[0].attrs["layout_free_buffers"]] == [1]
    np.testing.assert_allclose(outputs(lowered), outputs(mod), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("columns", [16, 48, 3, 20])
def test_other_products_are_unchanged(columns: int) -> None:
    mod = network(columns)
    assert pad_weights(mod) is mod


def test_a_product_of_activations_is_unchanged() -> None:
    builder = relax.BlockBuilder()
    x, y = (relax.Var(name, relax.TensorType(shape, "float32")) for name, shape in (("x", (5, 24)), ("y", (24, 31))))
    with builder.function("main", [x, y]):
        with builder.dataflow():
            result = builder.emit_output(relax.op.matmul(x, y))
        builder.emit_func_output(result)
    mod = builder.get()
    assert pad_weights(mod) is mod
