"""3x3 convolutions as Relax modules in NHWC, for the tests of Winograd's filtering."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import tvm
from torch import nn
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program


class Residual(nn.Module):
    """Two convolutions that Winograd can compute, with all that may follow them in a network, and two others."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, channels, 3, stride=2, padding=1)
        self.second = nn.Conv2d(channels, 2 * channels, 3, padding=1)
        self.third = nn.Conv2d(2 * channels, 2 * channels, 3, padding=1)
        self.last = nn.Conv2d(2 * channels, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """The image through all of them."""
        inner = torch.relu(self.second(torch.relu(self.first(x))))
        found: torch.Tensor = self.last(torch.relu(self.third(inner) + inner))
        return found


def to_relax(module: nn.Module, *inputs: torch.Tensor) -> tvm.IRModule:
    """A module as TVM imports it."""
    return from_exported_program(torch.export.export(module.eval(), inputs), unwrap_unit_return_tuple=True)


def channels_last(mod: tvm.IRModule) -> tvm.IRModule:
    """A module with its convolutions in NHWC."""
    return relax.transform.ConvertLayout({"relax.nn.conv2d": ["NHWC", "HWIO"]})(mod)


def output(mod: tvm.IRModule, *inputs: torch.Tensor) -> npt.NDArray[Any]:
    """What a module computes, with TVM's default schedules."""
    machine = relax.VirtualMachine(tvm.compile(mod, target="llvm"), tvm.cpu())
    found: npt.NDArray[np.float32] = machine["main"](*(tvm.runtime.tensor(one.numpy()) for one in inputs)).numpy()
    return found
