"""Minimum cut of a graph."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import breadth_first_order, maximum_flow

#: The cost of an arc that must not be cut.
FORBIDDEN = 1 << 40

#: SciPy computes flows in 32 bits.
_LARGEST = 1 << 30


class Cut:
    """A graph whose nodes are divided between two sides at the least cost.

    >>> cut = Cut()
    >>> first, free, second = cut.node(), cut.node(), cut.node()
    >>> cut.fix(first, 1), cut.fix(second, 0)
    (None, None)
    >>> cut.arc(first, free, 3), cut.arc(free, second, 2)
    (None, None)
    >>> sorted(cut.first_side()) == [first, free]
    True
    """

    #: The source and the sink.
    FIRST, SECOND = 0, 1

    def __init__(self) -> None:
        self._count = 2
        self._arcs: list[tuple[int, int, int]] = []

    def node(self) -> int:
        """Adds a node and returns its number."""
        self._count += 1
        return self._count - 1

    def fix(self, node: int, first: bool) -> None:
        """Fixes a node to the first side, or to the second."""
        self.arc(*((self.FIRST, node) if first else (node, self.SECOND)), FORBIDDEN)

    def arc(self, head: int, tail: int, cost: int) -> None:
        """Adds the cost of ``head`` on the first side and ``tail`` on the second."""
        self._arcs.append((head, tail, cost))

    def first_side(self) -> Collection[int]:
        """The nodes on the first side of a minimum cut, as many as possible."""
        # Costs are scaled so that their sum does not overflow.
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
