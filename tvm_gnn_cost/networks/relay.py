"""The networks of ``relay.testing`` and their Ansor tasks; talks to a TVM up to 0.19."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import tvm
from tvm import auto_scheduler, relay
from tvm.target import Target

from tvm_gnn_cost.networks.te_operators import te_operator

#: What each network is made with; images are NHWC, which Ansor's sketches are written for. Where a
#: network has no such choice, its convolutions are converted.
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "resnet-18": ("resnet", {"num_layers": 18, "image_shape": (224, 224, 3), "layout": "NHWC"}),
    "mobilenet": ("mobilenet", {"image_shape": (224, 224, 3), "layout": "NHWC"}),
    "inception-v3": ("inception_v3", {"image_shape": (3, 299, 299)}),
    "mlp": ("mlp", {"image_shape": (1, 28, 28)}),
    "resnet-34": ("resnet", {"num_layers": 34, "image_shape": (240, 240, 3), "layout": "NHWC"}),
    "resnet-50": ("resnet", {"num_layers": 50, "image_shape": (192, 192, 3), "layout": "NHWC"}),
    "vgg-16": ("vgg", {"num_layers": 16, "image_shape": (3, 160, 160)}),
    "squeezenet-v1.1": ("squeezenet", {"version": "1.1", "image_shape": (3, 224, 224)}),
    "densenet-121": ("densenet", {"image_shape": (3, 224, 224)}),
    "dqn": ("dqn", {"image_shape": (4, 84, 84)}),
    "resnet-101": ("resnet", {"num_layers": 101, "image_shape": (160, 160, 3), "layout": "NHWC"}),
    "vgg-11": ("vgg", {"num_layers": 11, "image_shape": (3, 128, 128)}),
    "squeezenet-v1.0": ("squeezenet", {"version": "1.0", "image_shape": (3, 192, 192)}),
}

#: Those whose tasks train models; the first three of ``NETWORKS`` only ever test one.
TRAINING = (
    *("mlp", "resnet-34", "resnet-50", "vgg-16", "squeezenet-v1.1", "densenet-121", "dqn"),
    *("resnet-101", "vgg-11", "squeezenet-v1.0"),
)
HELD_OUT = ("resnet-18", "mobilenet", "inception-v3")


@dataclass(frozen=True)
class RelayNetwork:
    """A network ready to tune.

    Attributes:
        name: Its name in ``NETWORKS``.
        mod: The Relay module.
        params: Its weights.
        example: float32, an input.
    """

    name: str
    mod: tvm.IRModule
    params: dict[str, Any]
    example: npt.NDArray[np.float32]


def load_relay_network(name: str) -> RelayNetwork:
    """Builds a network of ``relay.testing``, with weights from a fixed seed.

    Raises:
        ValueError: there is no such network.
    """
    if name not in NETWORKS:
        raise ValueError(f"unknown network '{name}' for auto_scheduler; one of: {', '.join(NETWORKS)}")
    module, settings = NETWORKS[name]
    testing = importlib.import_module(f"tvm.relay.testing.{module}")
    mod, params = testing.get_workload(batch_size=1, **settings)
    rng = np.random.default_rng(0)
    params = _draw_weights(mod, params, settings.get("layout") == "NHWC", rng)
    example = rng.standard_normal((1, *settings["image_shape"])).astype(np.float32)
    if "layout" not in settings:
        layouts = {"nn.conv2d": ["NHWC", "default"], "nn.max_pool2d": ["NHWC"], "nn.avg_pool2d": ["NHWC"]}
        convert = [relay.transform.RemoveUnusedFunctions(), relay.transform.ConvertLayout(layouts)]
        with tvm.transform.PassContext(opt_level=3):
            mod = tvm.transform.Sequential(convert)(mod)
    return RelayNetwork(name, mod, params, example)


def _draw_weights(mod: tvm.IRModule, params: dict[str, Any], is_nhwc: bool, rng: np.random.Generator) -> dict[str, Any]:
    """Weights with which the output depends on every layer (He et al. 2015, arXiv 1502.01852).

    ``relay.testing``'s own let the activations vanish: MobileNet's output is 0.001 for each of 1,000 classes, and a
    tuned network that computes something else would show no difference.
    """
    order = [str(var.name_hint) for var in mod["main"].params if str(var.name_hint) in params]
    classifier = [name for name in order if len(params[name].shape) == 2][-1:]
    drawn = {}
    for name in order:
        shape = tuple(int(size) for size in params[name].shape)
        if len(shape) < 2:
            values = np.full(shape, 1.0 if name.endswith(("gamma", "var")) else 0.0)
        else:
            deviation = np.sqrt(2 / _fan_in(shape, is_nhwc))
            # Logits of one size with their differences, so that the softmax is neither flat nor a single one.
            values = rng.standard_normal(shape) * deviation * (0.1 if name in classifier else 1.0)
        drawn[name] = tvm.nd.array(values.astype(np.float32))
    return drawn


def _fan_in(shape: tuple[int, ...], is_nhwc: bool) -> int:
    """Inputs of one output; kernels are HWIO (HWOI with one input for depthwise convolutions) or OIHW."""
    if len(shape) == 4 and is_nhwc:
        height, width, *channels = shape
        return height * width * (1 if channels[1] == 1 else channels[0])
    return int(np.prod(shape[1:]))


def local_target(model: str = "") -> Target:
    """The LLVM target of this machine: its cores, and AVX2 where it has that (LLVM 10 knows no later processors).

    Args:
        model: A name for the machine; the code does not depend on it.
    """
    cpuinfo = Path("/proc/cpuinfo")
    has_avx2 = cpuinfo.exists() and " avx2 " in cpuinfo.read_text()
    # Not every machine says how many of its cores are real ones.
    cores = psutil.cpu_count(logical=False) or os.cpu_count()
    name = f"llvm {'-mcpu=core-avx2 ' if has_avx2 else ''}-num-cores={cores}"
    return Target(f"{name} -model={model}" if model else name)


def plain_task(workload_key: str, target: Target, desc: str = "") -> auto_scheduler.SearchTask:
    """The task of a registered workload, with the layouts of its weights as they are.

    With any other layout option, every program with a dense weight fails to build in TVM 0.17.
    """
    plain = auto_scheduler.LayoutRewriteOption.NO_REWRITE
    return auto_scheduler.SearchTask(workload_key=workload_key, target=target, layout_rewrite_option=plain, desc=desc)


def extract_relay_tasks(network: RelayNetwork, target: Target) -> tuple[list[auto_scheduler.SearchTask], list[int]]:
    """The distinct tuning tasks of a network, and how often each occurs in it."""
    tasks, weights = auto_scheduler.extract_tasks(network.mod["main"], network.params, target)
    return [plain_task(task.workload_key, target, task.desc) for task in tasks], [int(weight) for weight in weights]


def tasks_of_workload(name: str, target: Target) -> tuple[list[auto_scheduler.SearchTask], list[int]]:
    """The tasks of a network, or that of an operator ``kind/number``, and how often each occurs.

    Raises:
        ValueError: there is no such workload.
    """
    kind, slash, number = name.partition("/")
    if not slash:
        return extract_relay_tasks(load_relay_network(name), target)
    if not number.isdecimal():
        raise ValueError(f"unknown workload '{name}'; an operator is KIND/NUMBER")
    tensors = te_operator(kind, int(number))
    key = auto_scheduler.ComputeDAG(tensors).workload_key()
    auto_scheduler.workload_registry.register_workload_tensors(key, tensors)
    return [plain_task(key, target, name)], [1]
