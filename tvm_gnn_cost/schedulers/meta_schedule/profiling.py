"""Times a compiled network by kernel."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from tvm import relax

from tvm_gnn_cost.schedulers.scheduler import Kernel, Profile

#: Number of runs with and without the profiler, and seconds after which there are no more of them.
_RUNS, _SECONDS = 30, 3.0

#: Runs that do not count.
_WARM_UP = 3


def profile(machine: relax.VirtualMachine, run: Callable[[], Any]) -> Profile:
    """The time of a network by kernel: the median over runs of each call, added over the calls of a name.

    Runs with and without the profiler are interleaved. The profiler adds microseconds to each call, most of them
    between the kernels.

    Args:
        machine: The network's virtual machine.
        run: Runs the network on it.
    """
    events: list[tuple[str, bool, float]] = []

    def note(_function: Any, name: str, before: bool, *_values: Any) -> int:
        events.append((name, before, time.perf_counter()))
        return 0  # run the call

    def seconds(instrument: Callable[..., int] | None) -> float:
        machine.set_instrument(instrument)
        start = time.perf_counter()
        run()
        return time.perf_counter() - start

    plain, profiled, calls = list[float](), list[float](), list[list[tuple[str, float]]]()
    for _ in range(_WARM_UP):
        run()
    end = time.perf_counter() + _SECONDS
    while len(plain) < _RUNS and (not plain or time.perf_counter() < end):
        events.clear()
        plain.append(seconds(None))
        profiled.append(seconds(note))
        calls.append(durations(events))
    machine.set_instrument(None)
    kernels: dict[str, list[float]] = {}
    for same in zip(*calls, strict=True):
        kernels.setdefault(same[0][0], []).append(median(spent for _, spent in same))
    return Profile(
        [Kernel(name, len(each), sum(each)) for name, each in kernels.items()], median(plain), median(profiled)
    )


def durations(events: Sequence[tuple[str, bool, float]]) -> list[tuple[str, float]]:
    """The calls of a run in the order of their ends: name and seconds, without those of calls inside.

    Args:
        events: Name of the function, whether it begins, and the time in seconds.
    """
    open_calls: list[list[float]] = []
    calls = []
    for name, before, at in events:
        if before:
            open_calls.append([at, 0.0])
            continue
        start, inside = open_calls.pop()
        calls.append((name, at - start - inside))
        if open_calls:
            open_calls[-1][1] += at - start
    return calls
