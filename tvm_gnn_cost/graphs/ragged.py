"""Ragged arrays: the rows of all items in one array, with the offset of each item's first row."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Offsets = npt.NDArray[np.int64]


def offsets_of(counts: Sequence[int] | npt.NDArray[np.integer]) -> Offsets:
    """Offsets of n items with the given numbers of rows: int64[n + 1].

    >>> offsets_of([2, 0, 3]).tolist()
    [0, 2, 2, 5]
    """
    return np.concatenate([[0], np.cumsum(np.asarray(counts, np.int64))]).astype(np.int64)


def gather(offsets: Offsets, items: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], Offsets]:
    """Row indices of the given items, in their order: int64[R], and their new offsets, int64[len(items) + 1].

    >>> rows, offsets = gather(offsets_of([2, 1, 3]), np.array([2, 0]))
    >>> rows.tolist(), offsets.tolist()
    ([3, 4, 5, 0, 1], [0, 3, 5])
    """
    counts = np.diff(offsets)[items]
    new_offsets = offsets_of(counts)
    rows = np.repeat(offsets[items] - new_offsets[:-1], counts) + np.arange(new_offsets[-1])
    return rows, new_offsets


def join(parts: Sequence[Offsets]) -> Offsets:
    """Offsets of concatenated ragged arrays.

    >>> join([offsets_of([2, 1]), offsets_of([4])]).tolist()
    [0, 2, 3, 7]
    """
    return offsets_of(np.concatenate([np.diff(part) for part in parts]))
