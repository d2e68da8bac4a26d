"""How busy other processes keep this machine, while a measurement runs."""

from __future__ import annotations

import time

import psutil


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
