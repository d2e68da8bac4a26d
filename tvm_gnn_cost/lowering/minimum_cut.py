"""The cheapest way to divide things between two sides."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

#: The cost of what must not be.
FORBIDDEN = 1 << 40

#: SciPy computes flows in 32 bits.
_LARGEST = 1 << 30


class Cut:
    """Things that pull each other to one of two sides.

    >>> cut = Cut()
    >>> first, free, second = cut.node(), cut.node(), cut.node()
    >>> cut.fix(first, 1), cut.fix(second, 0)
    (None, None)
    >>> cut.arc(first, free, 3), cut.arc(free, second, 2)
    (None, None)
    >>> sorted(cut.first_side()) == [first, free]
    True
    """

    #: Two things that lie on the two sides.
    FIRST, SECOND = 0, 1

    def __init__(self) -> None:
        self._count = 2
        self._arcs: list[tuple[int, int, int]] = []

    def node(self) -> int:
        """A new thing."""
        self._count += 1
        return self._count - 1

    def fix(self, node: int, first: bool) -> None:
        """Puts a thing on the first side, or on the second."""
        self.arc(*((self.FIRST, node) if first else (node, self.SECOND)), FORBIDDEN)

    def arc(self, head: int, tail: int, cost: int) -> None:
        """What it costs if one thing is on the first side and the other on the second."""
        self._arcs.append((head, tail, cost))

    def first_side(self) -> Collection[int]:
        """The things on the first side where all costs least; as many as possible."""
        # Larger costs are rounded so that no sum is too large.
        total = sum(cost for _, _, cost in self._arcs if cost < FORBIDDEN)
        unit = max(1.0, 2 * total / _LARGEST)
        costs = [_LARGEST if cost >= FORBIDDEN else max(1, round(cost / unit)) for _, _, cost in self._arcs]
        capacities: dict[tuple[int, int], int] = {}
        for (head, tail, _), cost in zip(self._arcs, costs, strict=True):
            capacities[head, tail] = min(_LARGEST, capacities.get((head, tail), 0) + cost)
        places = np.array(list(capacities), np.int32).reshape(-1, 2)
        graph = csr_array(
            (np.array(list(capacities.values()), np.int32), (places[:, 0], places[:, 1])),
            shape=(self._count, self._count),
        )
        residual = csr_array(graph - maximum_flow(graph, 0, 1).flow)
        residual.eliminate_zeros()
        reaching = breadth_first_order(csr_array(residual.T), 1, return_predecessors=False)
        return set(range(2, self._count)) - {int(item) for item in reaching}
