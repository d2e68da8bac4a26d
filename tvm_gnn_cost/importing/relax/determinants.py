"""Determinants."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tvm import relax, te, tirx

from tvm_gnn_cost.importing.relax.rules import Primitive, Unsupported, rule

#: Determinants of larger matrices are not written out.
_ROWS = 5


@rule("Det")
def determinant(node: Primitive) -> relax.Expr:
    """Determinants of small matrices, developed by their rows."""
    *batch, size, _ = node.shape(0)
    if size > _ROWS:
        raise Unsupported(f"its matrices have more than {_ROWS} rows")
    x = relax.op.reshape(node.tensor(0), [prod(batch), size, size])

    def developed(x: te.Tensor) -> te.Tensor:
        def minor(b: Any, row: int, columns: Sequence[int]) -> Any:
            if row == size:
                return tirx.const(1, str(x.dtype))
            found: Any = None
            for number, column in enumerate(columns):
                rest = [one for one in columns if one != column]
                term = x[b, row, column] * minor(b, row + 1, rest)
                found = term if found is None else (found - term if number % 2 else found + term)
            return found

        return te.compute((prod(batch),), lambda b: minor(b, 0, range(size)), name="det")

    return relax.op.reshape(node.te(developed, x, name="det"), node.out_shape())
