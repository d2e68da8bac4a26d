"""What worker processes run in ``test_isolation.py``; imports nothing, so that they start quickly."""

from __future__ import annotations

import os
from collections.abc import Sequence


def squares(items: Sequence[int]) -> list[int]:
    """Ends its process on a negative item, as TVM does on some records."""
    if min(items) < 0:
        os._exit(1)
    return [item**2 for item in items]


def process(_items: Sequence[int]) -> list[int]:
    return [os.getpid()]


def fail(items: Sequence[int]) -> list[int]:
    raise ValueError(f"a bug with {items[0]}")
