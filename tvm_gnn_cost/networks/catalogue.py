"""Workloads by name: networks to tune, and networks and operators whose tasks train the cost model."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import torch
from torch import nn

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.networks import convolutional, layers, operators, sequence
from tvm_gnn_cost.networks.layers import layer_names

#: Networks that ``tune`` accepts: name -> (function that builds it, input shape). ResNet-18, MobileNetV2 and
#: Inception v3 are test networks (``datasets.split``), so no model is trained on their tasks.
TUNED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "resnet-18": (convolutional.resnet_18, (1, 3, 224, 224)),
    "mobilenet-v1": (convolutional.mobilenet_v1, (1, 3, 224, 224)),
    "mobilenet-v2": (convolutional.mobilenet_v2, (1, 3, 224, 224)),
    "inception-v3": (convolutional.inception_v3, (1, 3, 299, 299)),
}

#: Networks whose tasks train the cost model. Their images are smaller than usual: more shapes, shorter measurements.
TRAINING: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mobilenet-v1": TUNED["mobilenet-v1"],
    "resnet-50": (convolutional.resnet_50, (1, 3, 160, 160)),
    "resnext-50": (convolutional.resnext_50, (1, 3, 128, 128)),
    "vgg-11": (convolutional.vgg_11, (1, 3, 224, 224)),
    "squeezenet": (convolutional.squeezenet, (1, 3, 224, 224)),
    "densenet": (convolutional.densenet_small, (1, 3, 192, 192)),
    "shufflenet": (convolutional.shufflenet_small, (1, 3, 224, 224)),
    "efficientnet": (convolutional.efficientnet_small, (1, 3, 192, 192)),
    "unet": (convolutional.unet_small, (1, 3, 96, 96)),
    "dcgan": (convolutional.dcgan_generator, (1, 100)),
    "bert-tiny": (sequence.bert_tiny, (1, 64, 256)),
    "bert-base": (sequence.bert_base, (1, 128, 768)),
    "vit": (sequence.VisionTransformer, (1, 3, 224, 224)),
    "mlp-mixer": (sequence.mlp_mixer, (1, 196, 320)),
    "perceptron": (sequence.perceptron, (16, 784)),
}


def workload(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    """A network by its name, or a random operator or layer as ``kind/number``: the module and its input shape.

    Raises:
        InputError: there is no such workload.
    """
    if not is_workload(name):
        kinds = [*operators.KINDS, *layers.LAYERS]
        known = ", ".join([*TUNED, *(n for n in TRAINING if n not in TUNED), *(f"{k}/N" for k in kinds)])
        raise InputError(f"unknown workload '{name}'; one of: {known}")
    if name in TUNED or name in TRAINING:
        make, shape = (TUNED | TRAINING)[name]
        return make(), shape
    kind, _, number = name.partition("/")
    return (operators.operator if kind in operators.KINDS else layers.layer)(kind, int(number))


def is_workload(name: str) -> bool:
    """Whether :func:`workload` knows the name."""
    kind, _, number = name.partition("/")
    return name in TUNED or name in TRAINING or is_layer(name) or (kind in operators.KINDS and number.isdecimal())


def is_layer(name: str) -> bool:
    """Whether a name is a random layer, ``kind/number``."""
    kind, _, number = name.partition("/")
    return kind in layers.LAYERS and number.isdecimal()


def drawn_workload(name: str) -> tuple[nn.Module, tuple[torch.Tensor]]:
    """A workload with weights from a fixed seed, and an example of its input.

    Raises:
        InputError: there is no such workload.
    """
    # Building a network must not change the caller's random state.
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        module, shape = workload(name)
        give_weights(module)
        return module.eval(), (torch.randn(shape),)


def give_weights(module: nn.Module) -> None:
    """Draws weights that keep the size of the activations through any depth (He et al. 2015, arXiv:1502.01852).

    With torch's default initialization, the activations of a deep network vanish: its output is the last layer's bias,
    and a comparison with PyTorch would not detect a wrong convolution.
    """
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")


#: Number of random operators of each kind in the training set.
_OPERATORS_A_KIND = 4
#: Number of layers of the group ``layers``; each is about one task.
_LAYERS = 1200


def expand_groups(
    names: Iterable[str], training: Iterable[str], kinds: Collection[str], held_out: Iterable[str]
) -> tuple[str, ...]:
    """Expands the groups ``training``, ``held-out`` and ``layers`` to their members.

    >>> expand_groups(["held-out", "dense/0"], [], [], ["resnet-18"])
    ('resnet-18', 'dense/0')
    """
    operators = (f"{kind}/{number}" for number in range(_OPERATORS_A_KIND) for kind in kinds)
    groups = {"training": (*training, *operators), "held-out": (*held_out,), "layers": (*layer_names(_LAYERS),)}
    return tuple(member for name in names for member in groups.get(name, (name,)))
