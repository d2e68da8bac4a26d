"""What measures: this machine, with its lock and load, or the machines of TVM's RPC tracker."""

from __future__ import annotations

import fcntl
import os
import platform
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import psutil

from tvm_gnn_cost.errors import InputError

#: Fields of /proc/cpuinfo that identify a processor beside its name.
_SIGNATURE = ("cpu family", "model", "stepping")


def describe_machine() -> dict[str, Any]:
    """Processor, cores, memory in GiB, system and Python version, without identifying the machine or its user.

    The signature tells processors of the same name apart: virtual machines call both Zen 4 and Zen 5 ``AMD EPYC``. It
    is empty where the system does not report it.
    """
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    # Reversed: those of the first processor count.
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in reversed(lines))}
    signature = [f"{name.removeprefix('cpu ')} {fields[name]}" for name in _SIGNATURE if name in fields]
    return {
        "processor": fields.get("model name") or platform.processor() or platform.machine(),
        "signature": ", ".join(signature),
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
    # None on machines that do not report physical cores.
    return min(allowed, psutil.cpu_count(logical=False) or allowed)


#: The lock file of this machine; scripts can wait for it with ``flock``.
LOCK_PATH = Path(tempfile.gettempdir()) / "tvm_gnn_cost-measure.lock"

#: Held while stderr, TVM's functions by name or MetaSchedule's log are changed for the whole process; a search holds it
#: until it ends, so that searches in other threads wait.
PROCESS_WIDE = threading.RLock()


@contextmanager
def machine_to_itself() -> Iterator[None]:
    """Waits until no other process measures on this machine, and keeps others waiting until the block ends.

    A killed process releases the lock.
    """
    descriptor = os.open(LOCK_PATH, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


class OtherLoad:
    """Measures the load of processes other than this process and its children, from its creation on."""

    def __init__(self) -> None:
        self.begin, self.used = time.monotonic(), _used_by_others()

    def cores(self) -> float:
        """Average number of busy cores; inaccurate for less than 0.1 s."""
        return max(0.0, _used_by_others() - self.used) / max(1e-3, time.monotonic() - self.begin)


def _used_by_others() -> float:
    """CPU seconds of other processes since boot."""
    everything = psutil.cpu_times()
    # Stolen time belongs to other machines; guest time is part of user time.
    used = everything.user + everything.system + getattr(everything, "nice", 0.0)
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        try:
            times = process.cpu_times()
        except psutil.NoSuchProcess:
            continue
        # With that of children that have ended: a worker calls a linker.
        used -= times.user + times.system + times.children_user + times.children_system
    return float(used)


@dataclass(frozen=True)
class Tracker:
    """TVM's RPC tracker, which lends each registered machine to one client at a time.

    Attributes:
        host: Host name or address.
        port: Port.
        key: Key of the machines, as in ``python -m tvm.exec.rpc_server --key KEY``.
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
            raise InputError(f"the tracker's address must be HOST:PORT, such as localhost:9190, not '{address}'")
        if not key:
            raise InputError(f"the tracker {address} needs the key that its machines registered with")
        return cls(host.strip("[]"), int(port), key)

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


def tracker_at(address: str, key: str) -> Tracker | None:
    """The tracker at an address; None without address and key.

    Raises:
        InputError: see :meth:`Tracker.at`.
    """
    return Tracker.at(address, key) if address or key else None


def describe_measuring(tracker: Tracker | None) -> dict[str, Any]:
    """Description of what measures, for cards and reports: this machine, or a tracker's machines."""
    return describe_machine() if tracker is None else {"processor": f"machines '{tracker.key}' of an RPC tracker"}


@contextmanager
def timed(seconds: dict[str, float], phase: str) -> Iterator[None]:
    """Adds the duration of a block to the seconds of a phase, even if the block raises an error.

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
