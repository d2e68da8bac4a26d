from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tvm_gnn_cost.importing import exported, onnx_graphs
from tvm_gnn_cost.importing.decompositions import decompose


class Extremes(nn.Module):
    """Over all axes and over one."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.amax(), x.amin(1), x.amin(keepdim=True)


class Several(nn.Module):
    """What the exporter lacks otherwise."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        ordered = torch.sort(x, 1)[0]
        attended = nn.functional.scaled_dot_product_attention(x, 2 * x, x)
        three = nn.functional.scaled_dot_product_attention(x[None], x[None], x[None], is_causal=True)
        middle = x.median(1)
        distances = (torch.cdist(x, 2 * x), torch.cdist(x, x + 1, p=1.0), torch.cdist(x, x + 1, p=3.0))
        result = (torch.searchsorted(ordered, x), torch.searchsorted(ordered, ordered, right=True))
        return (
            nn.functional.logsigmoid(90 * x),
            x.prod(1),
            x.prod(),
            x.cumprod(0),
            *middle,
            *distances,
            *result,
            attended,
            three,
        )


LAYERS = [
    (Several(), (5, 7)),
    (Extremes(), (2, 3)),
    (nn.AvgPool2d(3, 2, 1, divisor_override=5), (1, 2, 9, 8)),
    (nn.AvgPool2d((2, 3), ceil_mode=True, count_include_pad=False, divisor_override=4), (2, 7, 8)),
    (nn.AvgPool3d(2, 2, 1, ceil_mode=True, divisor_override=3), (1, 2, 5, 4, 3)),
    (nn.AdaptiveMaxPool2d((3, 5), return_indices=True), (1, 2, 7, 9)),
    (nn.AdaptiveMaxPool1d(3), (1, 2, 8)),
    (nn.AdaptiveMaxPool3d((2, 1, 3)), (1, 2, 5, 4, 4)),
]


@pytest.mark.parametrize(("layer", "shape"), LAYERS)
def test_what_the_exporter_lacks_is_written_otherwise(layer: nn.Module, shape: tuple[int, ...]) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    image = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    program = exported.export(layer, (image,), "pool")
    name = next(iter(exported.open_shapes(program, "pool")))
    results: Any = onnx_graphs.run(exported.to_onnx(program, "pool"), {name: image})
    for output, expected in zip(results, exported.run(program, {name: image}), strict=True):
        np.testing.assert_allclose(output, expected, rtol=1e-5, atol=1e-6)


def test_a_program_without_such_operators_is_left_as_it_is() -> None:
    program = exported.export(nn.AvgPool2d(2), (torch.ones(1, 1, 4, 4),), "pool")
    assert decompose(program) is program
