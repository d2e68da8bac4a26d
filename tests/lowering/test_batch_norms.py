from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from torch import nn
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program

from tests.torch_networks import Convolutional, make
from tvm_gnn_cost.importing import exported
from tvm_gnn_cost.lowering.batch_norms import fold_batch_norms
from tvm_gnn_cost.networks.convolutional import mobilenet_v2
from tvm_gnn_cost.schedulers.meta_schedule.target import local_target


def count(mod: tvm.IRModule, operator: str) -> int:
    return str(mod["main"]).count(f"R.nn.{operator}(")


def imported(program: torch.export.ExportedProgram) -> tvm.IRModule:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return from_exported_program(program, unwrap_unit_return_tuple=True)


def fold(module: nn.Module, shape: tuple[int, ...]) -> tvm.IRModule:
    """The network with its batch norms folded; checks that its outputs stay PyTorch's."""
    torch.manual_seed(0)
    program = exported.export(module, torch.randn(shape), "net")
    mod = imported(program)
    before = str(mod)
    folded = fold_batch_norms(mod)
    assert str(mod) == before
    lowered = relax.get_pipeline("zero")(relax.transform.DecomposeOpsForInference()(folded))
    machine = relax.VirtualMachine(tvm.compile(lowered, local_target()), tvm.cpu())
    inputs = exported.examples(program, "net")
    outputs = machine["main"](*(tvm.runtime.tensor(array) for array in inputs.values()))
    expected = exported.run(program, inputs)
    for output, wanted in zip([outputs] if len(expected) == 1 else outputs, expected, strict=True):
        np.testing.assert_allclose(output.numpy(), wanted, atol=2e-5)
    return folded


class Chain(nn.Module):
    """Layers one after the other, in no ``nn.Sequential``."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


def chain(*kinds: Any) -> nn.Module:
    """Made by :func:`tests.torch_networks.make`, so that the batch norms do something."""
    return make(lambda: Chain(*(kind() for kind in kinds)))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("convolution", "norm", "settings", "shape"),
    [
        (nn.Conv2d, nn.BatchNorm2d, {}, (2, 4, 6, 6)),
        (nn.Conv2d, nn.BatchNorm2d, {"groups": 2, "stride": 2, "padding": 1}, (1, 4, 6, 6)),
        (nn.Conv1d, nn.BatchNorm1d, {}, (1, 4, 6)),
        (nn.Conv3d, nn.BatchNorm3d, {}, (1, 4, 4, 4, 4)),
        (nn.ConvTranspose2d, nn.BatchNorm2d, {"stride": 2}, (1, 4, 6, 6)),
        (nn.ConvTranspose2d, nn.BatchNorm2d, {"groups": 2}, (1, 4, 6, 6)),
        (nn.ConvTranspose1d, nn.BatchNorm1d, {}, (1, 4, 6)),
    ],
)
def test_every_kind_of_convolution_is_folded(
    convolution: Any, norm: Any, settings: dict[str, int], shape: tuple[int, ...], bias: bool
) -> None:
    folded = fold(chain(lambda: convolution(4, 8, 3, bias=bias, **settings), lambda: norm(8), nn.ReLU), shape)
    assert count(folded, "batch_norm") == 0


def test_a_network_without_a_sequential_is_folded() -> None:
    folded = fold(make(Convolutional), (1, 3, 12, 12))
    assert (count(folded, "conv2d"), count(folded, "batch_norm")) == (2, 0)


def test_a_deep_network_is_folded() -> None:
    program = exported.export(make(mobilenet_v2), torch.randn(1, 3, 32, 32), "net")
    folded = fold_batch_norms(imported(program))
    assert (count(folded, "conv2d"), count(folded, "batch_norm")) == (52, 0)


def test_a_batch_norm_that_follows_no_convolution_stays() -> None:
    folded = fold(chain(lambda: nn.BatchNorm2d(4), nn.ReLU, lambda: nn.Conv2d(4, 8, 1)), (1, 4, 6, 6))
    assert count(folded, "batch_norm") == 1
    # Something lies between the two.
    apart = fold(chain(lambda: nn.Conv2d(4, 8, 1), nn.ReLU, lambda: nn.BatchNorm2d(8)), (1, 4, 6, 6))
    assert count(apart, "batch_norm") == 1


def test_the_second_of_two_batch_norms_stays() -> None:
    twice = chain(lambda: nn.Conv2d(4, 8, 1), lambda: nn.BatchNorm2d(8), lambda: nn.BatchNorm2d(8))
    assert count(fold(twice, (1, 4, 6, 6)), "batch_norm") <= 1


class TwoReaders(nn.Module):
    """Something else reads the convolution too: another operator, or the caller."""

    def __init__(self, gives: bool, bias: bool) -> None:
        super().__init__()
        self.convolve, self.norm, self.gives = nn.Conv2d(4, 8, 1, bias=bias), nn.BatchNorm2d(8), gives

    def forward(self, x: torch.Tensor) -> Any:
        x = self.convolve(x)
        return (self.norm(x), x) if self.gives else self.norm(x) + torch.relu(x)


@pytest.mark.parametrize("gives", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_a_convolution_that_something_else_reads_is_not_folded(gives: bool, bias: bool) -> None:
    folded = fold(make(TwoReaders, gives=gives, bias=bias), (1, 4, 6, 6))
    assert (count(folded, "conv2d"), count(folded, "batch_norm")) == (1, 1)
