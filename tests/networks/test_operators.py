from __future__ import annotations

import pytest
import torch

from tvm_gnn_cost.networks.operators import KINDS, BatchMatmul, operator

#: Input shapes of the operators 0, 1 and 2 of each kind. Records name operators by their number, so a number must never
#: come to mean other shapes.
SHAPES = {
    "dense": [(4, 160), (196, 160), (16, 160)],
    "batch-matmul": [(4, 128, 24), (8, 32, 64), (8, 32, 24)],
    "conv2d": [(1, 16, 40, 40), (1, 48, 40, 40), (1, 16, 40, 40)],
    "depthwise-conv2d": [(1, 88, 20, 20), (1, 168, 60, 60), (1, 88, 60, 60)],
    "grouped-conv2d": [(1, 48, 20, 20), (1, 256, 20, 20), (1, 256, 20, 20)],
    "dilated-conv2d": [(1, 24, 18, 18), (1, 24, 26, 26), (1, 72, 34, 34)],
    "transposed-conv2d": [(1, 96, 7, 7), (1, 32, 7, 7), (1, 48, 7, 7)],
    "conv1d": [(1, 96, 160), (1, 48, 160), (1, 96, 100)],
    "softmax": [(64, 512), (196, 200), (16, 512)],
    "layer-norm": [(100, 640), (196, 160), (196, 160)],
    "pooling": [(1, 80, 28, 28), (1, 160, 18, 18), (1, 80, 18, 18)],
    "attention": [(1, 48, 80), (1, 48, 160), (1, 48, 48)],
}


def test_a_number_means_the_same_shapes_for_ever() -> None:
    assert {kind: [operator(kind, number)[1] for number in range(3)] for kind in KINDS} == SHAPES


@pytest.mark.parametrize("kind", KINDS)
def test_an_operator_runs_on_its_input(kind: str) -> None:
    for number in range(4):
        module, shape = operator(kind, number)
        with torch.inference_mode():
            out = module.eval()(torch.zeros(shape))
        assert out.numel()
        assert out.dtype == torch.float32


@pytest.mark.parametrize("kind", KINDS)
def test_a_number_is_always_the_same_operator_and_numbers_differ(kind: str) -> None:
    def described(number: int) -> str:
        module, shape = operator(kind, number)
        return f"{module} {[tuple(p.shape) for p in module.parameters()]} {shape}"

    assert described(5) == described(5)
    assert len({described(number) for number in range(12)}) > 3


def test_a_batched_product_is_torchs() -> None:
    module = BatchMatmul(2, 3, 4)
    x = torch.randn(2, 5, 3)
    torch.testing.assert_close(module(x), torch.bmm(x, module.other))
