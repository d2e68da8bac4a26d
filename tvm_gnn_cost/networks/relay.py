"""The networks of ``relay.testing`` and their Ansor tasks; talks to a TVM up to 0.19."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import auto_scheduler, relay

#: What each network is made with; images are NHWC, which Ansor's sketches are written for.
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "resnet-18": ("resnet", {"num_layers": 18, "image_shape": (224, 224, 3), "layout": "NHWC"}),
    "mobilenet": ("mobilenet", {"image_shape": (224, 224, 3), "layout": "NHWC"}),
    # It knows no other layout; its convolutions are converted.
    "inception-v3": ("inception_v3", {"image_shape": (3, 299, 299)}),
}


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
    state = np.random.get_state()
    np.random.seed(0)  # its initialiser draws from the global generator
    mod, params = testing.get_workload(batch_size=1, **settings)
    example = np.random.default_rng(0).standard_normal((1, *settings["image_shape"])).astype(np.float32)
    np.random.set_state(state)
    if "layout" not in settings:
        layouts = {"nn.conv2d": ["NHWC", "default"], "nn.max_pool2d": ["NHWC"], "nn.avg_pool2d": ["NHWC"]}
        convert = [relay.transform.RemoveUnusedFunctions(), relay.transform.ConvertLayout(layouts)]
        with tvm.transform.PassContext(opt_level=3):
            mod = tvm.transform.Sequential(convert)(mod)
    return RelayNetwork(name, mod, params, example)


def local_target() -> tvm.target.Target:
    """The LLVM target of this machine."""
    cpu: Callable[[], str] = tvm.get_global_func("target.llvm_get_system_cpu", allow_missing=True) or (lambda: "")
    return tvm.target.Target(f"llvm -mcpu={cpu()}" if cpu() else "llvm")


def extract_relay_tasks(
    network: RelayNetwork, target: tvm.target.Target
) -> tuple[list[auto_scheduler.SearchTask], list[int]]:
    """The distinct tuning tasks of a network, and how often each occurs in it."""
    tasks, weights = auto_scheduler.extract_tasks(network.mod["main"], network.params, target)
    # With any other layout option, every program with a dense weight fails to build in TVM 0.17.
    plain = [
        auto_scheduler.SearchTask(
            workload_key=task.workload_key,
            target=target,
            layout_rewrite_option=auto_scheduler.LayoutRewriteOption.NO_REWRITE,
            desc=task.desc,
        )
        for task in tasks
    ]
    return plain, [int(weight) for weight in weights]
