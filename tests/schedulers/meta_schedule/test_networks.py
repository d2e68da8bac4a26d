from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
import tvm
from tvm import relax

from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.networks import catalogue, operators
from tvm_gnn_cost.networks.convolutional import mobilenet_v2, resnet_18
from tvm_gnn_cost.schedulers.meta_schedule import networks
from tvm_gnn_cost.schedulers.meta_schedule.networks import extract_tasks, fold_batch_norms, give_weights, load_network
from tvm_gnn_cost.schedulers.meta_schedule.target import local_target


@pytest.mark.parametrize("make", [resnet_18, mobilenet_v2])
def test_folding_batch_norms_keeps_the_output(make: type) -> None:
    torch.manual_seed(0)
    module = make().eval()
    for norm in module.modules():
        if isinstance(norm, torch.nn.BatchNorm2d):
            norm.running_mean.uniform_(-0.1, 0.1)
            norm.running_var.uniform_(0.5, 1.5)
    image = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        expected = module(image)
        folded = fold_batch_norms(module)
        assert not any(isinstance(child, torch.nn.BatchNorm2d) for child in folded.modules())
        torch.testing.assert_close(folded(image), expected, rtol=1e-3, atol=1e-4)


def test_the_compiled_network_computes_what_pytorch_does() -> None:
    network = load_network("perceptron")
    machine = relax.VirtualMachine(tvm.compile(network.mod, local_target()), tvm.cpu())
    output = machine["main"](tvm.runtime.tensor(network.example)).numpy()
    np.testing.assert_allclose(output, network.expected, atol=1e-5)


@pytest.mark.parametrize("name", sorted(catalogue.TUNED))
def test_every_convolution_shows_in_the_output(name: str) -> None:
    # Else a schedule that computes something else would pass where a tuned network is compared with PyTorch.
    torch.manual_seed(0)
    module, shape = catalogue.workload(name)
    give_weights(module)
    module.eval()
    image = torch.randn(shape)
    convolutions = [layer for layer in module.modules() if isinstance(layer, torch.nn.Conv2d)]
    with torch.no_grad():
        expected = module(image)
        for layer in convolutions:
            right = layer.weight.clone()
            layer.weight.neg_()
            difference = (module(image) - expected).abs().max() / expected.abs().max()
            layer.weight.copy_(right)
            assert difference > 1e-2, layer


def test_resnet_18_has_its_19_tasks() -> None:
    tasks = extract_tasks(load_network("resnet-18").mod, local_target())
    assert len(tasks) == 19
    assert sum(int(task.weight) for task in tasks) > 19


@pytest.mark.parametrize("kind", operators.KINDS)
def test_every_operator_has_a_task_and_is_the_same_every_time(kind: str) -> None:
    one, two = load_network(f"{kind}/1"), load_network(f"{kind}/1")
    assert extract_tasks(one.mod, local_target())
    np.testing.assert_array_equal(one.expected, two.expected)


def test_making_a_network_leaves_torchs_random_numbers_alone() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    load_network("dense/0")
    assert torch.equal(torch.rand(2), expected)


def test_nothing_is_warned_of_while_a_network_is_loaded() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", DeprecationWarning)
        load_network("softmax/0")


def test_a_network_that_tvm_cannot_import_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Unsupported(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.eigvalsh(x)

    monkeypatch.setattr(networks, "workload", lambda _: (Unsupported(), (4, 4)))
    with pytest.raises(WorkError, match=r"TVM cannot import mine: .*eigh") as error:
        load_network("mine")
    assert error.value.__cause__ is not None


def test_a_network_without_tasks_is_a_mistake() -> None:
    with pytest.raises(InputError, match="the network has no tuning task"):
        extract_tasks(tvm.IRModule(), local_target())
