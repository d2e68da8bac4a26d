from __future__ import annotations

import numpy as np
import pytest

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.values import GROUPS, VALUES, columns


def test_no_two_columns_have_one_name() -> None:
    assert len({name for name, _ in VALUES}) == len(VALUES) == 80


def test_each_group_is_a_run_of_columns() -> None:
    assert GROUPS == ("constant", "dtype", "loop", "access", "work", "target", "gpu")
    assert [columns([group]).tolist() for group in GROUPS] == [
        np.arange(first, last).tolist()
        for first, last in ((0, 2), (2, 6), (6, 25), (25, 50), (50, 63), (63, 68), (68, 80))
    ]


def test_columns_ascend_whatever_the_order_of_the_groups() -> None:
    result = columns(["work", "dtype", "work"])
    assert result.tolist() == [*range(2, 6), *range(50, 63)]
    assert result.dtype == np.int64
    assert columns([]).tolist() == []
    assert columns(GROUPS).tolist() == [*range(80)]


def test_an_unknown_group_is_named() -> None:
    with pytest.raises(
        InputError,
        match="there is no feature group 'loops'; the groups are constant, dtype, loop, access, work, target, gpu",
    ):
        columns(["dtype", "loops"])
