"""What measures: this machine, its lock and its load, or the machines of TVM's RPC tracker."""

from __future__ import annotations

import fcntl
import os
import platform
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

from tvm_gnn_cost.errors import InputError


def describe_machine() -> dict[str, Any]:
    """Processor, cores, memory in GiB, system and Python version; nothing that identifies the machine or its user."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    return {
        "processor": model,
        "cores": psutil.cpu_count(logical=False),
        "threads": psutil.cpu_count(logical=True),
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def use_all_cores() -> None:
    """Makes TVM run programs on all physical cores of this process; it takes half of the processors otherwise.

    TVM reads ``TVM_NUM_THREADS`` when a process runs its first program. This is an initializer for processes that
    measure, such as those of TVM's own runner: ``LocalRunner(initializer=use_all_cores)``. A value that the user has
    set is kept.
    """
    os.environ.setdefault("TVM_NUM_THREADS", str(usable_cores()))


def usable_cores() -> int:
    """Number of physical cores that this process may use."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    # Some machines do not tell physical cores from logical ones.
    return min(allowed, psutil.cpu_count(logical=False) or allowed)


#: The lock's file, one on each machine; scripts can wait for it with ``flock``.
LOCK_PATH = Path(tempfile.gettempdir()) / "tvm_gnn_cost-measure.lock"


@contextmanager
def machine_to_itself() -> Iterator[None]:
    """Waits until no other process measures on this machine; others wait until the block ends.

    A process that is killed releases the lock.
    """
    descriptor = os.open(LOCK_PATH, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class OtherLoad:
    """Counts what processes other than this one and its children use, from now on."""

    def __init__(self) -> None:
        self.begin, self.used = time.monotonic(), _used_by_others()

    def cores(self) -> float:
        """Number of cores that they kept busy on average; of no use for less than a tenth of a second."""
        return max(0.0, _used_by_others() - self.used) / max(1e-3, time.monotonic() - self.begin)


def _used_by_others() -> float:
    """Seconds of processor time so far."""
    everything = psutil.cpu_times()
    # Time that a hypervisor took away belongs to other machines; that of guests is part of the user's.
    used = everything.user + everything.system + getattr(everything, "nice", 0.0)
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        # Its own, and that of its children that have ended: a worker calls a linker.
        used -= times.user + times.system + times.children_user + times.children_system
    return float(used)


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


@contextmanager
def timed(seconds: dict[str, float], phase: str) -> Iterator[None]:
    """Adds the seconds that a block takes to those of a phase, also if the block raises an error.

    >>> seconds: dict[str, float] = {}
    >>> with timed(seconds, "building"):
    ...     _ = sum(range(1000))
    >>> seconds["building"] > 0
    True
    """
    start = time.perf_counter()
    try:
        yield
    finally:
        seconds[phase] = seconds.get(phase, 0.0) + time.perf_counter() - start
