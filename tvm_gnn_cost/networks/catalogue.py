"""The workloads by name: networks to tune, networks and operators to train on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from torch import nn

from tvm_gnn_cost.networks import convolutional, operators, sequence
from tvm_gnn_cost.networks.names import networks_named

#: The networks that ``tune`` takes: name -> (definition, input shape). Those in HELD_OUT never train a model.
TUNED: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "resnet-18": (convolutional.resnet_18, (1, 3, 224, 224)),
    "mobilenet-v1": (convolutional.mobilenet_v1, (1, 3, 224, 224)),
    "mobilenet-v2": (convolutional.mobilenet_v2, (1, 3, 224, 224)),
    "inception-v3": (convolutional.inception_v3, (1, 3, 299, 299)),
}

#: The networks whose tasks only ever test a model.
HELD_OUT = ("resnet-18", "mobilenet-v2", "inception-v3")

#: The same for measured programs in TenSet's layout, by the names that TenSet gives them.
TENSET_HELD_OUT = ("resnet_18", "mobilenet", "inception_v3")

#: The networks whose tasks train a model. Their images are smaller than usual: more shapes, shorter measurements.
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


def networks_to_test(known: Iterable[str], asked: Sequence[str] = ()) -> list[str]:
    """Those of the known networks that are asked for; without any, those that only test a model, ours or TenSet's.

    Raises:
        ValueError: one that is asked for is not known, or none that only tests is.
    """
    names = sorted(known)
    for name in asked:
        if not networks_named(name, names):
            raise ValueError(f"network '{name}' does not occur in the data; it has: {', '.join(names) or 'none'}")
    wanted = asked or (*HELD_OUT, *TENSET_HELD_OUT)
    found = [network for name in dict.fromkeys(wanted) for network in networks_named(name, names)]
    if not found:
        raise ValueError(
            f"none of the usual test networks ({', '.join((*HELD_OUT, *TENSET_HELD_OUT))}) occurs in the data; "
            f"choose among its networks: {', '.join(names) or 'none'}"
        )
    return found


def workload(name: str) -> tuple[nn.Module, tuple[int, ...]]:
    """A network by name, or an operator as ``kind/number``: the module and the shape of its input.

    Raises:
        ValueError: there is no such workload.
    """
    if name in TUNED or name in TRAINING:
        make, shape = (TUNED | TRAINING)[name]
        return make(), shape
    kind, _, number = name.partition("/")
    if kind in operators.KINDS and number.isdecimal():
        return operators.operator(kind, int(number))
    known = ", ".join([*TUNED, *(n for n in TRAINING if n not in TUNED), *(f"{k}/N" for k in operators.KINDS)])
    raise ValueError(f"unknown workload '{name}'; one of: {known}")
