"""The test networks: models are never trained on their tasks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tvm_gnn_cost.errors import InputError

#: Scheduler -> its test networks, named as in its measure records (TenSet's names for ``auto-scheduler``).
TEST_NETWORKS = {
    "meta-schedule": ("resnet-18", "mobilenet-v2", "inception-v3"),
    "auto-scheduler": ("resnet_18", "mobilenet", "inception_v3"),
}


def networks_named(name: str, networks: Iterable[str]) -> list[str]:
    """The networks with a name; TenSet's names also match without the input shapes at their end.

    >>> networks_named("resnet_18", ["resnet_18[(1,3,224,224)]", "resnet_50"])
    ['resnet_18[(1,3,224,224)]']
    """
    return [network for network in networks if name in (network, network.partition("[")[0])]


def networks_to_test(known: Iterable[str], asked: Sequence[str] = ()) -> list[str]:
    """The networks to test on: those in ``asked``, by default the test networks, or the only one that there is.

    >>> networks_to_test(["bert", "resnet_18[(1,3,224,224)]"])
    ['resnet_18[(1,3,224,224)]']

    Args:
        known: The networks that occur in the data.
        asked: Names of networks, see :func:`networks_named`.

    Raises:
        InputError: a network in ``asked`` does not occur in the data, or by default none of several is a test network.
    """
    names = sorted(known)
    for name in asked:
        if not networks_named(name, names):
            raise InputError(f"network '{name}' does not occur in the data; it has: {', '.join(names) or 'none'}")
    usual = [name for networks in TEST_NETWORKS.values() for name in networks]
    found = [network for name in dict.fromkeys(asked or usual) for network in networks_named(name, names)]
    if not found and len(names) == 1:
        return names
    if not found:
        raise InputError(
            f"none of the usual test networks ({', '.join(usual)}) occurs in the data; "
            f"choose among its networks: {', '.join(names) or 'none'}"
        )
    return found
