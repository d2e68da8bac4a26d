from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tvm_gnn_cost.schedulers.meta_schedule import profiling
from tvm_gnn_cost.schedulers.meta_schedule.profiling import durations, profile


def test_a_call_counts_without_those_inside_of_it() -> None:
    events = [
        ("a", True, 0.0),
        ("b", True, 1.0),
        ("b", False, 3.0),
        ("c", True, 4.0),
        ("c", False, 4.5),
        ("a", False, 10.0),
        ("b", True, 11.0),
        ("b", False, 12.0),
    ]
    assert durations(events) == [("b", 2.0), ("c", 0.5), ("a", 7.5), ("b", 1.0)]
    assert durations([]) == []


class Machine:
    """A virtual machine that calls ``slow`` twice and ``quick`` once."""

    def __init__(self) -> None:
        self.instrument: Callable[..., int] | None = None
        self.runs = {True: 0, False: 0}

    def set_instrument(self, instrument: Callable[..., int] | None) -> None:
        self.instrument = instrument

    def run(self) -> None:
        self.runs[self.instrument is not None] += 1
        for name, seconds in (("slow", 2e-3), ("quick", 0.0), ("slow", 2e-3)):
            for before in (True, False):
                if self.instrument is not None:
                    assert self.instrument(None, name, before, None, "an argument") == 0
                if before:
                    time.sleep(seconds)


def test_the_calls_of_a_kernel_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "_RUNS", 3)
    machine: Any = Machine()
    found = profile(machine, machine.run)
    assert [(kernel.name, kernel.calls) for kernel in found.kernels] == [("slow", 2), ("quick", 1)]
    slow, quick = (kernel.seconds for kernel in found.kernels)
    assert 4e-3 <= slow < 0.1
    assert quick < 2e-3
    assert found.seconds >= 4e-3
    assert slow + quick <= found.profiled * 1.5
    assert machine.runs == {True: 3, False: 3 + profiling._WARM_UP}
    assert machine.instrument is None


def test_a_slow_network_runs_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "_SECONDS", 0.0)
    machine: Any = Machine()
    profile(machine, machine.run)
    assert machine.runs[True] == 1
