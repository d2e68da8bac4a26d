from __future__ import annotations

import doctest
import itertools
import random

import pytest

from tvm_gnn_cost.lowering import minimum_cut
from tvm_gnn_cost.lowering.minimum_cut import FORBIDDEN, Cut


def test_its_examples_hold() -> None:
    assert doctest.testmod(minimum_cut).failed == 0


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("largest", [9, 10**10])
def test_it_finds_what_costs_least_and_of_that_the_largest_first_side(seed: int, largest: int) -> None:
    rng = random.Random(seed)
    cut = Cut()
    nodes = [cut.node() for _ in range(6)]
    cut.fix(nodes[0], first=True)
    cut.fix(nodes[1], first=False)
    arcs = [(*rng.sample(nodes, 2), largest // rng.randint(1, 9)) for _ in range(15)]
    arcs.append((nodes[2], nodes[3], FORBIDDEN))
    for arc in arcs:
        cut.arc(*arc)

    def cost(first: set[int]) -> int:
        return sum(price for head, tail, price in arcs if head in first and tail not in first)

    ways = [{nodes[0], *more} for size in range(5) for more in itertools.combinations(nodes[2:], size)]
    result = set(cut.first_side())
    assert cost(result) <= min(map(cost, ways)) * (1 + 1e-6)
    if largest < 10:
        assert len(result) == max(len(way) for way in ways if cost(way) == cost(result))
