from __future__ import annotations

import numpy as np
import torch
from torch import nn

from tests.schedulers.meta_schedule.convolutions import Residual, channels_last, output, to_relax
from tvm_gnn_cost.lowering.constants import rearrange_constants


def test_weights_are_transposed_now_and_images_later() -> None:
    torch.manual_seed(0)
    module, image = Residual(8), torch.randn(1, 3, 12, 12)
    mod = channels_last(to_relax(module, image))
    found = rearrange_constants(mod)
    # The image and the output remain.
    assert mod["main"].script().count("R.permute_dims") > 2 == found["main"].script().count("R.permute_dims")
    assert "R.reshape" not in found["main"].script()
    np.testing.assert_allclose(output(found, image), module(image).detach(), atol=1e-4)


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
    found = rearrange_constants(to_relax(Shapes(), x))
    assert found["main"].script().count("R.permute_dims") == 1
    assert found["main"].script().count("R.reshape") == 1
    np.testing.assert_array_equal(output(found, x), Shapes()(x))
