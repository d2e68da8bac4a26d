from __future__ import annotations

import doctest

from tvm_gnn_cost.measuring import bandwidth
from tvm_gnn_cost.measuring.bandwidth import CopySpeed, copy_speeds


def test_its_examples_hold() -> None:
    assert doctest.testmod(bandwidth, extraglobs={"CopySpeed": CopySpeed}).failed == 0


def test_copies_of_every_size_are_timed() -> None:
    found = copy_speeds((2**18, 2**20))
    assert [one.size for one in found] == [2**18, 2**20]
    assert all(1e7 < one.speed < 1e13 for one in found)
