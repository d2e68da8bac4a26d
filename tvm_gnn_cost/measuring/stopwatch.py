"""Counts the seconds that the phases of a long run take."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


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
