"""Where the machines that measure are registered: the address of TVM's RPC tracker, and their key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.measuring.machine import describe_machine


@dataclass(frozen=True)
class Tracker:
    """TVM's RPC tracker, which gives a registered machine to one client at a time.

    Attributes:
        host: Its host name or address.
        port: Its port.
        key: The machines that ``python -m tvm.exec.rpc_server --key KEY`` registered.
    """

    host: str
    port: int
    key: str

    @classmethod
    def at(cls, address: str, key: str) -> Self:
        """The tracker at an address.

        >>> Tracker.at("rack-1:9190", "board")
        Tracker(host='rack-1', port=9190, key='board')

        Raises:
            InputError: the address is not HOST:PORT, or there is no key.
        """
        host, _, port = address.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
            raise InputError(f"the tracker's address must be HOST:PORT, such as localhost:9190, and not '{address}'")
        if not key:
            raise InputError(f"which machines of the tracker {address} are meant? Give the key that they registered")
        return cls(host.strip("[]"), int(port), key)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def tracker_at(address: str, key: str) -> Tracker | None:
    """The tracker that a user names; None if he names neither an address nor a key.

    Raises:
        InputError: see :meth:`Tracker.at`.
    """
    return Tracker.at(address, key) if address or key else None


def describe_measuring(tracker: Tracker | None) -> dict[str, Any]:
    """What measures, for cards and reports: this machine, or a tracker's machines."""
    return describe_machine() if tracker is None else {"processor": f"machines '{tracker.key}' of an RPC tracker"}
