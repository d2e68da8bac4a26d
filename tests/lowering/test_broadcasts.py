"""Small products and the operators that spread their results."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import relax

from tests.lowering.relax_modules import build, outputs, weights
from tvm_gnn_cost.lowering.broadcasts import separate_broadcasts
from tvm_gnn_cost.lowering.layouts import legalize


def scaled(builder: relax.BlockBuilder, x: relax.Var, rows: relax.Var) -> Any:
    """Squeeze-and-excitation without the mean: the rows, by a matrix, scale the image."""
    scale = builder.emit(relax.op.sigmoid(builder.emit(relax.op.matmul(rows, weights(8, 32)))))
    return relax.op.multiply(x, builder.emit(relax.op.reshape(scale, (1, 1, 1, 32))))


def added(builder: relax.BlockBuilder, x: relax.Var, rows: relax.Var) -> Any:
    return relax.op.add(builder.emit(relax.op.matmul(rows, weights(8, 32))), x)


def kernels(mod: tvm.IRModule) -> list[str]:
    return [var.name_hint for var, function in mod.functions_items() if isinstance(function, tvm.tirx.PrimFunc)]


@pytest.mark.parametrize(("compute", "shape"), [(scaled, (1, 6, 6, 32)), (added, (20, 32))])
def test_the_product_and_what_spreads_it_are_two_kernels(compute: Any, shape: tuple[int, ...]) -> None:
    mod = build(compute, shape, (1, 8))
    lowered, _ = legalize(mod)
    assert len(kernels(lowered)) == 2
    np.testing.assert_allclose(outputs(lowered)[0], outputs(mod)[0], rtol=1e-5, atol=1e-6)


def test_what_follows_is_fused_with_the_operator() -> None:
    mod = build(lambda builder, *x: relax.op.nn.relu(builder.emit(added(builder, *x))), (20, 32), (1, 8))
    assert len(kernels(legalize(mod)[0])) == 2


def test_a_bias_and_a_residual_stay_in_the_product() -> None:
    def emit(builder: relax.BlockBuilder, x: relax.Var, residual: relax.Var) -> Any:
        product = builder.emit(relax.op.add(builder.emit(relax.op.matmul(x, weights(8, 32))), weights(1, 32)))
        return relax.op.add(product, residual)

    mod = build(emit, (20, 8), (20, 32))
    tvm.ir.assert_structural_equal(separate_broadcasts(mod), mod)
    assert len(kernels(legalize(mod)[0])) == 1
