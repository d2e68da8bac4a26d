from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from torch import nn
from tvm import relax
from tvm.relax import op

from tests.lowering.relax_modules import build, outputs
from tests.schedulers.meta_schedule.convolutions import Residual, channels_last, output, to_relax
from tvm_gnn_cost.lowering.constants import rearrange_constants


def test_weights_are_transposed_now_and_images_later() -> None:
    torch.manual_seed(0)
    module, image = Residual(8), torch.randn(1, 3, 12, 12)
    mod = channels_last(to_relax(module, image))
    result = rearrange_constants(mod)
    # The image and the output remain.
    assert mod["main"].script().count("R.permute_dims") > 2 == result["main"].script().count("R.permute_dims")
    assert "R.reshape" not in result["main"].script()
    np.testing.assert_allclose(output(result, image), module(image).detach(), atol=1e-4)


class Shapes(nn.Module):
    """Constants that are transposed without axes, reshaped, and both."""

    def __init__(self) -> None:
        super().__init__()
        self.weights: torch.Tensor
        self.register_buffer("weights", torch.arange(24.0).reshape(4, 6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Everything that the constants become, and the same of an input."""
        return x.T.reshape(24) + self.weights.T.reshape(24) + self.weights.reshape(2, 12).T.reshape(-1)


def test_transposes_and_reshapes_of_constants_alone_are_computed() -> None:
    x = torch.randn(4, 6)
    results = rearrange_constants(to_relax(Shapes(), x))
    assert results["main"].script().count("R.permute_dims") == 1
    assert results["main"].script().count("R.reshape") == 1
    np.testing.assert_array_equal(output(results, x), Shapes()(x))


A = relax.const(np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32))
B = relax.const(np.random.default_rng(1).standard_normal((3, 4)).astype(np.float32))
INTEGERS = relax.const(np.array([[-3, 2, 7, 2**40]]), "int64")
SMALL = relax.const(np.array([-7, 2, 100]), "int32")


def index(*numbers: int) -> relax.Expr:
    return relax.const(np.array(numbers), "int64")


COMPUTED: dict[str, Callable[[], Any]] = {
    "reshape": lambda: op.reshape(A, (2, 6)),
    "squeeze": lambda: op.squeeze(INTEGERS, [0]),
    "expand_dims": lambda: op.expand_dims(A, [0, 2]),
    "flatten": lambda: op.flatten(A),
    "permute_dims": lambda: op.permute_dims(A),
    "flip": lambda: op.flip(A, 1),
    "tile": lambda: op.tile(A, (2, 1, 2)),
    "broadcast_to": lambda: op.broadcast_to(INTEGERS, (2, 3, 4)),
    "concat": lambda: op.concat([A, B, A], -1),
    "stack": lambda: op.stack([A, B], 1),
    "full": lambda: op.full((2, 3), relax.const(2.5), "float32"),
    "full_like": lambda: op.full_like(A, relax.const(2.5)),
    "zeros": lambda: op.zeros((2, 3), "int64"),
    "ones_like": lambda: op.ones_like(INTEGERS),
    "to half": lambda: op.astype(A, "float16"),
    "to integers": lambda: op.astype(op.multiply(A, relax.const(10.0)), "int32"),
    "to few bits": lambda: op.astype(INTEGERS, "int8"),
    "to truth values": lambda: op.astype(SMALL, "bool"),
    "take": lambda: op.take(A, index(-1, 0), 0, mode="wrap"),
    "strided_slice": lambda: op.strided_slice(A, [0, 1], [-2, 0], [9, 4], [1, 3]),
    "where": lambda: op.where(op.less(A, B), A, B),
    "negative": lambda: op.negative(INTEGERS),
    "abs": lambda: op.abs(A),
    "exp": lambda: op.exp(A),
    "tanh": lambda: op.tanh(A),
    "sqrt": lambda: op.sqrt(op.square(A)),
    "rsqrt": lambda: op.rsqrt(op.add(op.abs(A), relax.const(1e-5))),
    "floor": lambda: op.floor(A),
    "add": lambda: op.add(INTEGERS, index(1)),
    "subtract": lambda: op.subtract(A, relax.const(1.0)),
    "multiply": lambda: op.multiply(INTEGERS, INTEGERS),
    "divide": lambda: op.divide(A, B),
    "power": lambda: op.power(op.abs(A), B),
    "maximum": lambda: op.maximum(A, B),
    "minimum": lambda: op.minimum(SMALL, relax.const(3, "int32")),
    "equal": lambda: op.equal(SMALL, relax.const(2, "int32")),
    "logical_and": lambda: op.logical_and(op.less(A, B), op.greater(A, relax.const(0.0))),
    "normalized": lambda: op.divide(
        op.expand_dims(A, 0), op.sqrt(op.add(op.expand_dims(op.abs(B), 0), relax.const(1e-5)))
    ),
}  # fmt: skip


def module(*emits: Callable[[], Any]) -> tvm.IRModule:
    return build(lambda builder, _: relax.Tuple([builder.emit(emit()) for emit in emits]), (1,))


def test_what_is_computed_of_constants_is_a_constant() -> None:
    mod = module(*COMPUTED.values())
    result = rearrange_constants(mod)
    assert not [name for name in ("R.call", "R.add", "R.reshape", "R.astype") if name in result["main"].script()]
    assert not any(
        isinstance(binding.value, relax.Call) for block in result["main"].body.blocks for binding in block.bindings
    )
    for name, item, expected in zip(COMPUTED, outputs(result), outputs(mod), strict=True):
        assert item.dtype == expected.dtype, name
        np.testing.assert_allclose(item, expected, rtol=1e-6, atol=1e-6, err_msg=name)


NAN = relax.const(np.array([np.nan, 1.0], np.float32))


@pytest.mark.parametrize(
    "emit",
    [
        # Each machine casts these its way.
        lambda: op.astype(NAN, "int32"),
        lambda: op.astype(relax.const(np.array([3e9], np.float32)), "int32"),
        # TVM gives one of the two, NumPy what is not a number.
        lambda: op.maximum(NAN, relax.const(0.0)),
        # TVM's division of integers rounds to zero.
        lambda: op.divide(SMALL, relax.const(2, "int32")),
        lambda: op.take(A, index(5), 0, mode="fast"),
    ],
)
def test_what_numpy_computes_otherwise_stays(emit: Callable[[], Any]) -> None:
    result = rearrange_constants(module(emit))
    assert any(
        isinstance(binding.value, relax.Call) for block in result["main"].body.blocks for binding in block.bindings
    )


def test_constants_of_bfloat16() -> None:
    weights = op.astype(A, "bfloat16")
    mod = module(lambda: op.astype(op.permute_dims(op.add(weights, weights)), "float32"))
    (result,) = outputs(rearrange_constants(mod))
    np.testing.assert_allclose(result, 2 * A.value.numpy().T, rtol=1e-2)
    assert "R.add" not in rearrange_constants(mod)["main"].script()
