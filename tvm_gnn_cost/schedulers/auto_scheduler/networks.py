"""Builds the networks of ``relay.testing`` and extracts their tuning tasks."""

from __future__ import annotations

import importlib
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import tvm
from tvm import auto_scheduler, relay, te
from tvm.target import Target

from tvm_gnn_cost.datasets.records import last_line
from tvm_gnn_cost.datasets.split import TEST_NETWORKS
from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.importing import exported, onnx_graphs
from tvm_gnn_cost.importing.names import is_function
from tvm_gnn_cost.importing.source import call_function, check_source, load_model
from tvm_gnn_cost.networks.catalogue import drawn_workload, is_layer, workload
from tvm_gnn_cost.schedulers.auto_scheduler import relay_modules
from tvm_gnn_cost.schedulers.auto_scheduler.operators import KINDS, te_operator
from tvm_gnn_cost.schedulers.scheduler import Network, Task

if TYPE_CHECKING:
    import onnx

#: The newest operators that this TVM's importer knows.
NEWEST_OPSET = 17

_NO_TORCH = "auto_scheduler's TVM imports no PyTorch program: export {name} as an ONNX file (torch.onnx.export)"

#: Name -> module of ``relay.testing`` and its arguments. Ansor's sketches are written for images in NHWC; a network
#: without a ``layout`` argument is converted.
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

#: Channels times rows of the input of MobileNet's convolutions, which is a test network of ``auto_scheduler`` alone.
_MOBILENET = (32 * 112, 64 * 112)

#: The networks whose tasks train models, and those whose tasks only test them.
TRAINING = (
    *("mlp", "resnet-34", "resnet-50", "vgg-16", "squeezenet-v1.1", "densenet-121", "dqn"),
    *("resnet-101", "vgg-11", "squeezenet-v1.0"),
)
HELD_OUT = tuple(name.replace("_", "-") for name in TEST_NETWORKS["auto-scheduler"])


def load_network(
    source: Any, inputs: Any = None, shapes: Mapping[str, tuple[int, ...]] | None = None, trusted: bool = False
) -> Network:
    """A network ready to tune; see :func:`~tvm_gnn_cost.importing.source.load_model` for the arguments.

    Raises:
        InputError: there is no such network, a file is of another kind, or the inputs do not fit.
        WorkError: TVM cannot import it.
    """
    if str(source).endswith(".pt2"):
        raise InputError(_NO_TORCH.format(name=source))
    frameworks = (onnx_graphs, exported, relay_modules)
    model = load_model(source, inputs, shapes, trusted, catalogue=_workload, frameworks=frameworks)
    if exported.accepts(model.program):
        raise InputError(_NO_TORCH.format(name=model.name))
    # TVM's importer and passes raise errors of any type.
    try:
        if relay_modules.accepts(model.program):
            (mod, params), program = relay_modules.with_weights(model.program), None
        else:
            (mod, params), program = from_onnx(model.program, model.name), model.program
        if model.name not in NETWORKS:
            mod = _to_nhwc(mod)
    except InputError:
        raise
    except Exception as error:
        raise WorkError(f"TVM cannot import {model.name}: {last_line(error)}") from error
    # An input that nothing reads is no parameter.
    names = [str(one.name_hint) for one in mod["main"].params if str(one.name_hint) not in params]
    ordered = {name: model.inputs[name] for name in names}
    return Network(model.name, mod, params, ordered, model.expected, program, model.digest)


def _workload(name: str) -> tuple[tvm.IRModule, dict[str, Any]]:
    """A network of ``relay.testing`` in NHWC or a random layer in NCHW, with weights from a fixed seed.

    Raises:
        InputError: there is no such network.
    """
    if is_layer(name):
        return from_onnx(_layer(name), name)
    if name not in NETWORKS:
        raise InputError(f"unknown network '{name}' for auto_scheduler; one of: {', '.join(NETWORKS)}")
    module, settings = NETWORKS[name]
    testing = importlib.import_module(f"tvm.relay.testing.{module}")
    mod, params = testing.get_workload(batch_size=1, **settings)
    params = _draw_weights(mod, params, settings.get("layout") == "NHWC", np.random.default_rng(0))
    return mod if "layout" in settings else _to_nhwc(mod), params


def _layer(name: str) -> onnx.ModelProto:
    """A random layer of :mod:`tvm_gnn_cost.networks.layers`, as PyTorch exports it."""
    module, inputs = drawn_workload(name)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        # torch warns that this exporter, the one for the operators that this TVM knows, is not its newest.
        warnings.simplefilter("ignore")
        path = Path(folder) / "layer.onnx"
        torch.onnx.export(module, inputs, path, opset_version=NEWEST_OPSET, dynamo=False)
        return onnx_graphs.read_onnx(path)


def _to_nhwc(mod: tvm.IRModule) -> tvm.IRModule:
    layouts = {"nn.conv2d": ["NHWC", "default"], "nn.max_pool2d": ["NHWC"], "nn.avg_pool2d": ["NHWC"]}
    convert = [relay.transform.RemoveUnusedFunctions(), relay.transform.ConvertLayout(layouts)]
    with tvm.transform.PassContext(opt_level=3):
        return tvm.transform.Sequential(convert)(mod)


def from_onnx(model: onnx.ModelProto, name: str) -> tuple[tvm.IRModule, dict[str, Any]]:
    """An ONNX model of fixed sizes as a Relay module, and its weights.

    Raises:
        InputError: its operators are newer than the importer's.
    """
    import onnx.version_converter  # an extra

    opset = next(one.version for one in model.opset_import if one.domain in ("", "ai.onnx"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            # The importer would take newer operators for old ones, and some then compute something else.
            if opset > NEWEST_OPSET:
                model = onnx.version_converter.convert_version(model, NEWEST_OPSET)
            mod, params = relay.frontend.from_onnx(model)
        except Exception as error:  # the converter raises errors of any type, or writes what cannot be imported
            if opset <= NEWEST_OPSET:
                raise
            raise InputError(
                f"{name} is of ONNX opset {opset} and this TVM's importer knows {NEWEST_OPSET}: export it again, in "
                f"PyTorch with torch.onnx.export(..., opset_version={NEWEST_OPSET}, dynamo=False)"
            ) from error
    return mod, params


def _draw_weights(mod: tvm.IRModule, params: dict[str, Any], is_nhwc: bool, rng: np.random.Generator) -> dict[str, Any]:
    """Draws weights with which the output depends on every layer (He et al. 2015, arXiv:1502.01852).

    With the weights of ``relay.testing`` the activations vanish: MobileNet's output is 0.001 for each of 1,000 classes,
    and comparing outputs would not show that a tuned network computes something else.
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
            # Small logits, so that the softmax is neither flat nor 1 for a single class.
            values = rng.standard_normal(shape) * deviation * (0.1 if name in classifier else 1.0)
        drawn[name] = tvm.nd.array(values.astype(np.float32))
    return drawn


def _fan_in(shape: tuple[int, ...], is_nhwc: bool) -> int:
    """Number of inputs of one output; kernels are OIHW or HWIO, or HWOI with I = 1 if depthwise."""
    if len(shape) == 4 and is_nhwc:
        height, width, *channels = shape
        return height * width * (1 if channels[1] == 1 else channels[0])
    return int(np.prod(shape[1:]))


def plain_task(workload_key: str, target: Target, desc: str = "") -> auto_scheduler.SearchTask:
    """The task of a registered workload, without rewriting the layouts of its weights.

    With any other layout option TVM 0.17 cannot build a program with a dense weight.
    """
    plain = auto_scheduler.LayoutRewriteOption.NO_REWRITE
    return auto_scheduler.SearchTask(workload_key=workload_key, target=target, layout_rewrite_option=plain, desc=desc)


def extract_tasks(network: Network, target: Target) -> list[Task]:
    """The distinct tuning tasks of a network, in TVM's order; their keys are workload keys."""
    tasks, weights = auto_scheduler.extract_tasks(network.mod["main"], network.params, target)
    return [
        Task(str(task.workload_key), str(task.desc), int(weight), plain_task(task.workload_key, target, task.desc))
        for task, weight in zip(tasks, weights, strict=True)
    ]


def check_workload(name: str) -> None:
    """Checks that there is such a workload.

    Raises:
        InputError: there is none.
    """
    if not _is_operator(name) and not is_layer(name) and name not in NETWORKS:
        check_source(name, _workload)


def _is_operator(name: str) -> bool:
    """Whether a name is an operator's.

    Raises:
        InputError: it is a kind of operator without a number.
    """
    kind, slash, number = name.partition("/")
    if slash and kind in KINDS and not number.isdecimal():
        raise InputError(f"unknown workload '{name}'; an operator is KIND/NUMBER")
    return bool(slash) and kind in KINDS


def _are_tensors(value: Any) -> bool:
    """Whether a value is a list of TVM's tensor expressions."""
    return isinstance(value, list | tuple) and bool(value) and all(isinstance(one, te.Tensor) for one in value)


def tasks_of_workload(name: str, target: Target) -> list[Task]:
    """The tasks of a network or a layer, or the one of an operator.

    An operator is ``kind/number``, or ``package.module:function`` of a function that returns its inputs and outputs in
    a list, as those of ``auto_scheduler.register_workload`` do. A layer whose input is that of one of MobileNet's
    convolutions has no task, because MobileNet tests models.

    Raises:
        InputError: there is no such workload.
    """
    if is_layer(name) and _is_like_mobilenet(workload(name)[1]):
        return []
    tensors: Any
    if _is_operator(name):
        kind, _, number = name.partition("/")
        tensors = te_operator(kind, int(number))
    else:
        tensors = call_function(name) if is_function(name) else None
        if not _are_tensors(tensors):
            return extract_tasks(load_network(name), target)
    key = auto_scheduler.ComputeDAG(tensors).workload_key()
    auto_scheduler.workload_registry.register_workload_tensors(key, tensors)
    return [Task(str(key), name, 1, plain_task(key, target, name))]


def _is_like_mobilenet(shape: tuple[int, ...]) -> bool:
    """Whether MobileNet has convolutions of an input of this shape, in NCHW."""
    return len(shape) == 4 and shape[1] * shape[2] in _MOBILENET
