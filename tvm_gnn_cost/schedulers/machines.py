"""The machine that runs built programs: this machine, or a machine of TVM's RPC tracker."""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from typing import Any

from tvm_gnn_cost.datasets.records import last_line
from tvm_gnn_cost.errors import WorkError
from tvm_gnn_cost.measuring.arguments import Argument, draw
from tvm_gnn_cost.measuring.machine import Tracker
from tvm_gnn_cost.schedulers.scheduler import Machine

#: Seconds in which a tracker must answer.
_CONNECT_S = 10.0


class ThisMachine:
    """This machine, in this process."""

    def load(self, artifact: str) -> Any:
        """Loads a library."""
        import tvm

        return tvm.runtime.load_module(artifact)

    def place(self, places: dict[Any, Any], position: int, info: Any) -> Any:
        """A view of the memory that all arguments of this size share, regardless of their layout."""
        _, dtype, shape, *_ = info
        sizes = tuple(map(int, shape))
        key = (position, str(dtype), math.prod(sizes))
        if key not in places:
            ((places[key],),) = _runner("local_runner").default_alloc_argument(self.device(), (info[:3],), 1)
            _keep_in_range(places[key], info)
        return places[key]._create_view(sizes)

    def device(self) -> Any:
        """The CPU."""
        import tvm

        return tvm.cpu()

    def check(self) -> None:
        """Does nothing."""


class RemoteMachine:
    """A machine of a tracker.

    Args:
        session: TVM's session, with exclusive use of the machine.
    """

    def __init__(self, session: Any) -> None:
        self.session = session
        self.files: list[str] = []

    def load(self, artifact: str) -> Any:
        """Uploads a library and loads it on the machine."""
        name = f"{len(self.files)}-{os.path.basename(artifact)}"
        self.session.upload(artifact, target=name)
        self.files.append(name)
        return self.session.load_module(name)

    def place(self, places: dict[Any, Any], position: int, info: Any) -> Any:
        """Memory that all arguments of this shape share."""
        _, dtype, shape, *_ = info
        key = (position, str(dtype), tuple(map(int, shape)))
        if key not in places:
            runner = _runner("rpc_runner")
            ((places[key],),) = runner.default_alloc_argument(self.session, self.device(), (info[:3],), 1)
            _keep_in_range(places[key], info)
        return places[key]

    def device(self) -> Any:
        """The CPU of the machine."""
        return self.session.cpu()

    def check(self) -> None:
        """Checks that the machine answers."""
        # TVM's error depends on how the connection ended.
        try:
            _ = self.session.listdir(".")
        except Exception as error:
            raise ConnectionError(f"lost the connection to the machine ({error})") from error

    def clean(self) -> None:
        """Removes the uploaded files."""
        with suppress(Exception):  # the connection may be lost
            for name in self.files:
                self.session.remove(name)


@contextmanager
def machine_of(tracker: Tracker | None, limit_s: float) -> Iterator[Machine]:
    """A machine for exclusive use: a tracker's machine, or this machine, whose lock the caller holds.

    Args:
        tracker: The tracker; None for this machine.
        limit_s: Time limit of the session on a tracker's machine, in seconds.

    Raises:
        WorkError: the tracker does not answer, or has no machine with its key.
        ConnectionError: the machine does not answer.
    """
    if tracker is None:
        yield ThisMachine()
        return
    connected, _ = _connect(tracker)
    # Waits for a free machine. TVM's connection errors have several types.
    try:
        session = connected.request(tracker.key, session_timeout=math.ceil(limit_s))
    except Exception as error:
        raise ConnectionError(f"lost the connection to the machine ({error})") from error
    machine = RemoteMachine(session)
    try:
        yield machine
    finally:
        machine.clean()


def count_machines(tracker: Tracker) -> int:
    """Number of registered machines, including machines in use by other clients; at least 1.

    Raises:
        WorkError: the tracker does not answer, or has no machine with its key.
    """
    return _connect(tracker)[1]


def _keep_in_range(memory: Any, info: Sequence[Any]) -> None:
    """Redraws integers, because TVM's random values crash programs that index or divide with them."""
    _, dtype, shape, *bound = info
    if str(dtype).startswith(("int", "uint", "bool")):
        about = Argument(str(dtype), tuple(map(int, shape)), *bound)
        memory.copyfrom(draw([about], "positive")[0])


def _connect(tracker: Tracker) -> tuple[Any, int]:
    """TVM's connection to a tracker, and its number of machines.

    Raises:
        WorkError: the tracker does not answer, or has no machine with its key.
    """
    from tvm import rpc

    # TVM's connection errors have several types, and it would try for a minute.
    try:
        socket.create_connection((tracker.host, tracker.port), timeout=_CONNECT_S).close()
        connected = rpc.connect_tracker(tracker.host, tracker.port)
        known = connected.summary()["server_info"]
    except Exception as error:
        raise WorkError(f"no RPC tracker answers at {tracker} ({last_line(error)})") from error
    machines = sum(server["key"].partition(":")[2] == tracker.key for server in known)
    if not machines:
        raise WorkError(
            f"no machine with the key '{tracker.key}' is registered at the tracker {tracker}; start one with "
            f"python -m tvm.exec.rpc_server --tracker {tracker} --key {tracker.key}"
        )
    return connected, machines


def _runner(name: str) -> Any:
    """A module of MetaSchedule's runners."""
    from tvm_gnn_cost.installed import ms

    return import_module(f"{ms.__name__}.runner.{name}")
