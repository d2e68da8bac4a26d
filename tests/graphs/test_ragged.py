from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tvm_gnn_cost.graphs.ragged import gather, join, offsets_of

COUNTS = st.lists(st.integers(0, 4), max_size=8)


@given(COUNTS, st.data())
def test_gathered_rows_are_those_of_the_items_in_their_order(counts: list[int], data: st.DataObject) -> None:
    items = data.draw(st.lists(st.integers(0, len(counts) - 1), max_size=8)) if counts else []
    lists = np.split(np.arange(sum(counts)), np.cumsum(counts)[:-1]) if counts else []
    rows, offsets = gather(offsets_of(counts), np.array(items, np.int64))
    assert [rows[a:b].tolist() for a, b in pairwise(offsets)] == [lists[item].tolist() for item in items]
    assert rows.dtype == offsets.dtype == np.int64


@given(st.lists(COUNTS, min_size=1, max_size=4))
def test_joined_offsets_are_those_of_all_counts(parts: list[list[int]]) -> None:
    joined = join([offsets_of(counts) for counts in parts])
    assert joined.tolist() == offsets_of([count for counts in parts for count in counts]).tolist()
    assert joined.dtype == np.int64


def test_offsets_do_not_overflow_the_type_of_the_counts() -> None:
    counts = np.array([2**31 - 1, 2**31 - 1], np.int32)
    assert offsets_of(counts).tolist() == [0, 2**31 - 1, 2**32 - 2]
    assert offsets_of([]).tolist() == [0]


def test_an_item_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(IndexError):
        gather(offsets_of([1, 2]), np.array([2]))
