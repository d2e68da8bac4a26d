from __future__ import annotations

import numpy as np
import torch
import tvm
from torch import nn
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

from tvm_gnn_cost.lowering.corrections import correct
from tvm_gnn_cost.lowering.layouts import legalize
from tvm_gnn_cost.schedulers.meta_schedule.networks import extract_tasks
from tvm_gnn_cost.schedulers.meta_schedule.target import local_target


def network() -> tuple[tvm.IRModule, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU6(), nn.Conv2d(16, 32, 1), nn.Hardtanh(-1.0, 0.5))
    image = torch.randn(1, 3, 10, 10)
    exported = torch.export.export(module.eval(), (image,))
    mod = correct(from_exported_program(exported, unwrap_unit_return_tuple=True))
    return mod, image, module(image).detach()


def output(mod: tvm.IRModule, image: torch.Tensor) -> np.ndarray:  # type: ignore[type-arg]
    machine = relax.VirtualMachine(tvm.compile(mod, target=local_target()), tvm.cpu())
    found: np.ndarray = machine["main"](tvm.runtime.tensor(image.numpy())).numpy()  # type: ignore[type-arg]
    return found


def test_convolutions_are_in_nhwc_and_clips_are_fused_with_them() -> None:
    mod, image, expected = network()
    legal = legalize(mod)
    np.testing.assert_allclose(output(legal, image), expected, atol=1e-5)
    names = [task.name for task in extract_tasks(legal, local_target())]
    # One transposes the image, one the output, and the others are a convolution each with all that follows it.
    assert sum("conv2d" in name for name in names) == 2
    assert all("minimum" in name for name in names if "conv2d" in name)
    assert len(names) == 4
    assert "layout_free_buffers" in legal.script()
