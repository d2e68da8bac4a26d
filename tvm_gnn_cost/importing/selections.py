"""Operators whose result is as large as their operands' values say: those whose values are known, and no others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tvm_gnn_cost.importing.simplify import Call, Expansion, Refused, Simplifier, Value


def compress(simplifier: Simplifier, call: Call) -> Sequence[Value]:
    """``Compress``: the elements of an axis that a constant condition chooses."""
    condition = call.input(1)
    if not isinstance(condition, np.ndarray):
        raise Refused("the size of its output depends on a condition that is only known when it runs")
    value, axis = call.tensor(0), call.attributes.get("axis")
    if axis is None:
        count = int(np.prod(value.shape, dtype=np.int64))
        value, axis = simplifier.emit("Reshape", value, np.array([count], np.int64), name=call.name), 0
    places = np.flatnonzero(condition[: value.shape[axis]])
    return [simplifier.emit("Gather", value, places, axis=axis, name=call.name)]


def unknown(_: Simplifier, __: Call) -> Sequence[Value]:
    """Operators whose operands are not constant, so that nobody knows how large their output is.

    Raises:
        Refused: always; of constants they are computed before.
    """
    raise Refused("the size of its output depends on values that are only known when it runs")


#: How each operator is written.
EXPANSIONS: dict[str, Expansion] = {
    "Compress": compress,
    "NonZero": unknown,
    "NonMaxSuppression": unknown,
    "Unique": unknown,
}
