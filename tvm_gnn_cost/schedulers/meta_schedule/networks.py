"""Brings PyTorch networks to Relax and extracts their tuning tasks."""

from __future__ import annotations

import warnings

import torch
import tvm
from torch import nn
from torch.nn.utils import fusion
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.datasets.records import last_line
from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.networks.catalogue import workload
from tvm_gnn_cost.schedulers.scheduler import Network, Task


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
    """Draws weights that keep the size of the activations through any depth (He et al. 2015, arXiv:1502.01852).

    With torch's own weights the activations of a deep network vanish: its output is the last layer's bias, and
    comparing it with PyTorch's would not show a wrong convolution.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")


def load_network(name: str) -> Network:
    """Builds a workload of the catalogue, with weights from a fixed seed, and brings it to Relax.

    Raises:
        InputError: there is no such workload.
        WorkError: TVM cannot import it.
    """
    # Making a network must not shift the caller's random numbers.
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        module, shape = workload(name)
        give_weights(module)
        module = module.eval()
        example = torch.randn(shape)
        expected = module(example).numpy()
        module = fold_batch_norms(module)
        exported = torch.export.export(module, (example,))
    # TVM's importer and passes raise errors of any type.
    try:
        mod = _to_relax(exported)
        mod = relax.transform.DecomposeOpsForInference()(mod)
        mod = relax.transform.CanonicalizeBindings()(mod)
        mod = relax.get_pipeline("zero")(mod)
    except Exception as error:
        raise WorkError(f"TVM cannot import {name}: {last_line(error)}") from error
    return Network(name, mod, {}, example.numpy(), expected)


def _to_relax(exported: torch.export.ExportedProgram) -> tvm.IRModule:
    with warnings.catch_warnings():
        # On the way, torch copies an object of a class that it has itself deprecated.
        warnings.filterwarnings("ignore", message=".*LeafSpec.* is deprecated", category=FutureWarning)
        return from_exported_program(exported, unwrap_unit_return_tuple=True)


def extract_tasks(mod: tvm.IRModule, target: tvm.target.Target) -> list[Task]:
    """The distinct tuning tasks of a network, in TVM's order; their keys are structural hashes.

    Raises:
        InputError: the network has no task to tune.
    """
    found = ms.relax_integration.extract_tasks(mod, target, {})
    if not found:
        raise InputError("the network has no tuning task; was it legalised (relax.get_pipeline('zero'))?")
    return [Task(ms.utils.shash2hex(task.dispatched[0]), str(task.task_name), int(task.weight), task) for task in found]
