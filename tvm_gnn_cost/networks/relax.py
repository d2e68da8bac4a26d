"""From a ``torch`` module to a Relax module and its tuning tasks; talks to TVM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import tvm
from torch import nn
from torch.nn.utils import fusion
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.networks.catalogue import workload


@dataclass(frozen=True)
class Network:
    """A network ready to tune.

    Attributes:
        name: Its name in the catalogue.
        mod: The Relax module, parameters bound, operators legalised and fused.
        example: float32, an input.
        expected: float32, PyTorch's output for ``example``.
    """

    name: str
    mod: tvm.IRModule
    example: npt.NDArray[np.float32]
    expected: npt.NDArray[np.float32]


def fold_batch_norms(module: nn.Module) -> nn.Module:
    """Fuses each batch norm into the convolution right before it, in every ``nn.Sequential``."""
    for name, child in list(module.named_children()):
        setattr(module, name, fold_batch_norms(child))
    if isinstance(module, nn.Sequential):
        children = list(module)
        for i in range(len(children) - 1):
            conv, norm = children[i], children[i + 1]
            if isinstance(conv, nn.Conv2d) and isinstance(norm, nn.BatchNorm2d):
                children[i] = fusion.fuse_conv_bn_eval(conv, norm)
                children[i + 1] = nn.Identity()
        return nn.Sequential(*(child for child in children if not isinstance(child, nn.Identity)))
    return module


def give_weights(module: nn.Module) -> None:
    """Draws the weights so that the signal keeps its size through any depth (He et al. 2015, arXiv:1502.01852).

    With torch's own it dies in a deep network: the output is the last layer's bias, and a wrong convolution goes
    unnoticed where it is compared with PyTorch's.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")


def load_network(name: str) -> Network:
    """Builds a workload of the catalogue, with weights from a fixed seed, and brings it to Relax.

    Raises:
        ValueError: there is no such workload.
    """
    # The generators' states are put back, so that making a network does not shift anybody's random numbers.
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        module, shape = workload(name)
        give_weights(module)
        module = module.eval()
        example = torch.randn(shape)
        expected = module(example).numpy()
        module = fold_batch_norms(module)
        exported = torch.export.export(module, (example,))
    mod = from_exported_program(exported, unwrap_unit_return_tuple=True)
    mod = relax.transform.DecomposeOpsForInference()(mod)
    mod = relax.transform.CanonicalizeBindings()(mod)
    mod = relax.get_pipeline("zero")(mod)
    return Network(name, mod, example.numpy(), expected)


def local_target() -> tvm.target.Target:
    """The LLVM target of this machine: its processor and its physical cores."""
    llvm: dict[str, Any] = {"kind": "llvm", "mcpu": _local_cpu(), "num-cores": ms.utils.cpu_count(logical=False)}
    return tvm.target.Target(llvm)


def _local_cpu() -> str:
    name: str = tvm.get_global_func("target.llvm_get_system_cpu")()
    return name


def extract_tasks(mod: tvm.IRModule, target: tvm.target.Target) -> list[ms.ExtractedTask]:
    """The distinct tuning tasks of a network, with the number of times each occurs as its weight.

    Raises:
        ValueError: the network has no task to tune.
    """
    tasks: list[ms.ExtractedTask] = ms.relax_integration.extract_tasks(mod, target, {})
    if not tasks:
        raise ValueError("the network has no tuning task; was it legalised (relax.get_pipeline('zero'))?")
    return tasks
