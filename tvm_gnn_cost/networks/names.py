"""Names of networks, with and without the shapes that TenSet writes behind them."""

from __future__ import annotations

from collections.abc import Iterable


def networks_named(name: str, networks: Iterable[str]) -> list[str]:
    """Those of the networks with that name, be it without the shapes: ``resnet_18`` of ``resnet_18[(1,3,224,224)]``."""
    return [network for network in networks if name in (network, network.partition("[")[0])]
