"""Transposed convolutions as convolutions."""

from __future__ import annotations

import doctest
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from tvm import relax

from tests.lowering.relax_modules import build, outputs, transposes
from tvm_gnn_cost.lowering import transposed as module
from tvm_gnn_cost.lowering.layouts import legalize
from tvm_gnn_cost.lowering.transposed import convolve_transposed

#: Rank, kernel, stride, padding, output padding, size.
CASES = {
    "UNet": (2, 2, 2, 0, 0, 5),
    "DCGAN": (2, 4, 2, 1, 0, 4),
    "autoencoder": (2, 3, 2, 1, 1, 4),
    "more than a stride of padding": (2, 5, 2, 3, 1, 6),
    "gaps": (2, 2, 3, 0, 0, 4),
    "gaps and more outputs": (1, 2, 3, 0, 2, 4),
    "vocoder": (1, 16, 8, 4, 0, 7),
    "stride of one": (2, 3, 1, 1, 0, 5),
    "volume": (3, 3, 2, 1, 1, 3),
}


def network(name: str, groups: int = 1, dilation: int = 1) -> tvm.IRModule:
    rank, kernel, stride, padding, more, size = CASES[name]
    transposed = getattr(relax.op.nn, f"conv{rank}d_transpose")

    def emit(builder: relax.BlockBuilder, x: relax.Var) -> Any:
        matrix = np.random.default_rng(1).standard_normal((6, 8 // groups, *[kernel] * rank)).astype(np.float32)
        options = {"strides": [stride] * rank, "padding": [padding] * rank, "output_padding": [more] * rank}
        result = transposed(x, relax.const(matrix), **options, groups=groups, dilation=[dilation] * rank)
        return relax.op.nn.relu(builder.emit(result))

    return build(emit, (2, 6, *[size] * rank))


def test_its_examples_hold() -> None:
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("name", CASES)
def test_it_computes_what_torch_does(name: str) -> None:
    rank, kernel, stride, padding, more, size = CASES[name]
    lowered, _ = legalize(network(name))
    assert not any("transpose" in var.name_hint and "conv" in var.name_hint for var, _ in lowered.functions_items())
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((2, 6, *[size] * rank)).astype(np.float32))
    matrix = torch.from_numpy(np.random.default_rng(1).standard_normal((6, 8, *[kernel] * rank)).astype(np.float32))
    exact = getattr(torch.nn.functional, f"conv_transpose{rank}d")(x, matrix, None, stride, padding, more).relu()
    np.testing.assert_allclose(outputs(lowered)[0], exact.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("options", [{"groups": 2}, {"dilation": 2}])
def test_others_are_unchanged(options: dict[str, int]) -> None:
    mod = network("autoencoder", **options)
    tvm.ir.assert_structural_equal(convolve_transposed(mod), mod)


def test_outputs_are_moved_in_channels_last() -> None:
    mod = convolve_transposed(network("UNet"))
    assert transposes(mod) == 1
    lowered, _ = legalize(mod)
    moves = [var.name_hint for var, _ in lowered.functions_items() if "transpose" in var.name_hint]
    assert len(moves) == 2
