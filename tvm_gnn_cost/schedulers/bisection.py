"""Calls TVM on many items at once where a single bad item makes the whole call fail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Result = TypeVar("Result")


def each_or_empty(call: Callable[[Sequence[Any]], list[Result]], items: Sequence[Any], empty: Result) -> list[Result]:
    """The results of a call on all items, with ``empty`` for the items on which it fails.

    Where the call fails, it is repeated on each half of the items, down to single ones.

    >>> each_or_empty(lambda items: [1 / item for item in items], [1, 0, 4], -1)
    [1.0, -1, 0.25]
    """
    if not items:
        return []
    try:
        return call(items)
    # TVM raises errors of any type for an item that it cannot handle.
    except Exception:
        if len(items) == 1:
            return [empty]
    middle = len(items) // 2
    return each_or_empty(call, items[:middle], empty) + each_or_empty(call, items[middle:], empty)
