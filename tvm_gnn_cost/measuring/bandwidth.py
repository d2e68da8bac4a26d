"""Measures how fast this machine copies memory, of sizes that fit into its caches and of larger ones."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier

import numpy as np

from tvm_gnn_cost.measuring.machine import machine_to_itself, usable_cores

#: Bytes that a copy reads and writes. Smaller ones would time Python.
_SIZES = tuple(2**power for power in range(20, 28))

#: Rounds of each size, and seconds of one.
_ROUNDS, _SECONDS = 4, 0.01


@dataclass(frozen=True)
class CopySpeed:
    """The speed of a copy with all cores.

    Attributes:
        size: Bytes read and written.
        speed: Bytes read and written in a second.
    """

    size: int
    speed: float


def copy_speeds(sizes: Sequence[int] = _SIZES) -> list[CopySpeed]:
    """The speed of a copy of each size, at its fastest; takes half a second.

    Args:
        sizes: Bytes that a copy reads and writes, ascending.
    """
    cores = usable_cores()
    with machine_to_itself(), ThreadPoolExecutor(cores) as pool:
        return [CopySpeed(size, _speed(size, cores, pool)) for size in sizes]


def _speed(size: int, cores: int, pool: ThreadPoolExecutor) -> float:
    ready = Barrier(cores)

    def copy(_core: int) -> float:
        """Bytes per second of one core while the others copy too."""
        source, copied = (np.ones(size // (2 * cores), np.uint8) for _ in range(2))
        ready.wait()
        start, runs = time.perf_counter(), 0
        while not runs or time.perf_counter() < start + _SECONDS:
            np.copyto(copied, source)
            runs += 1
        return runs * 2 * source.size / (time.perf_counter() - start)

    return max(sum(pool.map(copy, range(cores))) for _ in range(_ROUNDS))


def seconds_to_copy(size: float, speeds: Sequence[CopySpeed]) -> float:
    """Seconds that a copy of so many bytes takes, by the next larger size that was measured.

    >>> seconds_to_copy(500, [CopySpeed(1000, 1e6), CopySpeed(2000, 5e5)])
    0.0005
    >>> seconds_to_copy(1e6, [CopySpeed(1000, 1e6), CopySpeed(2000, 5e5)])
    2.0
    """
    larger = [one for one in speeds if one.size >= size]
    return size / (larger[0] if larger else speeds[-1]).speed
