from __future__ import annotations

from collections.abc import Sequence

from tvm_gnn_cost.schedulers.bisection import each_or_empty


class Call:
    """Fails as a whole if an item is negative."""

    def __init__(self) -> None:
        self.made: list[list[int]] = []

    def __call__(self, items: Sequence[int]) -> list[int]:
        self.made.append(list(items))
        if min(items) < 0:
            raise RuntimeError("negative")
        return [item**2 for item in items]


def test_one_call_where_nothing_fails() -> None:
    call = Call()
    assert each_or_empty(call, [1, 2, 3], 0) == [1, 4, 9]
    assert call.made == [[1, 2, 3]]


def test_only_the_item_that_fails_is_empty_and_few_calls_are_made() -> None:
    call = Call()
    assert each_or_empty(call, [1, 2, 3, 4, 5, -6, 7, 8], 0) == [1, 4, 9, 16, 25, 0, 49, 64]
    assert call.made == [[1, 2, 3, 4, 5, -6, 7, 8], [1, 2, 3, 4], [5, -6, 7, 8], [5, -6], [5], [-6], [7, 8]]


def test_all_may_fail_and_there_may_be_none() -> None:
    assert each_or_empty(Call(), [-1, -2, -3], 7) == [7, 7, 7]
    call = Call()
    assert each_or_empty(call, [], 7) == []
    assert call.made == []
