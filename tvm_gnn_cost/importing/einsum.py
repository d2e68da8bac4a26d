"""Expands ``Einsum`` to matrix products: pair by pair, from the left."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from tvm_gnn_cost.importing.graph import Tensor
from tvm_gnn_cost.importing.simplify import Call, Expansion, Refused, Simplifier, Value


def einsum(simplifier: Simplifier, call: Call) -> Sequence[Value]:
    """Expands ``Einsum``."""
    values = [call.tensor(i) for i in range(len(call.inputs))]
    terms, output = _parsed(call.attributes["equation"], [len(value.shape) for value in values])
    lengths: dict[Any, int] = {}
    for term, value in zip(terms, values, strict=True):
        for label, size in zip(term, value.shape, strict=True):
            if size != 1 and lengths.get(label, 1) not in (1, size):
                raise Refused(f"its index '{label}' has two sizes, {lengths[label]} and {size}")
            lengths[label] = size if size != 1 else lengths.get(label, 1)
    with simplifier.at_opset(13):
        writer = _Writer(simplifier, call.name, lengths)
        operands = [writer.operand(value, term) for value, term in zip(values, terms, strict=True)]
        result = writer.summed(operands[0], {*output, *(label for other in operands[1:] for label in other.labels)})
        for number, other in enumerate(operands[1:], start=1):
            later = {*output, *(label for rest in operands[number + 1 :] for label in rest.labels)}
            result = writer.product(result, writer.summed(other, {*later, *result.labels}), later)
        return [writer.ordered(result, output)]


def _parsed(equation: str, ranks: Sequence[int]) -> tuple[list[list[Any]], list[Any]]:
    """The indices of each operand and of the output: letters, and numbers for the axes of an ellipsis.

    >>> _parsed("...ij,...jk->...ik", [3, 2])
    ([[-1, 'i', 'j'], ['j', 'k']], [-1, 'i', 'k'])
    >>> _parsed("ii", [2])
    ([['i', 'i']], [])
    """
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(ranks) or not all(
        re.fullmatch(r"[A-Za-z]*(\.\.\.[A-Za-z]*)?", term) for term in (*terms, right)
    ):
        raise Refused(f"its equation '{equation}' does not fit its operands")
    results: list[list[Any]] = []
    widest = 0
    for term, rank in zip(terms, ranks, strict=True):
        before, dots, behind = term.partition("...")
        more = rank - len(before) - len(behind)
        if more < 0 or (more and not dots):
            raise Refused(f"its equation '{equation}' does not fit its operands")
        widest = max(widest, more)
        results.append([*before, *range(-more, 0), *behind])
    every = range(-widest, 0)
    if arrow:
        before, dots, behind = right.partition("...")
        output = [*before, *(every if dots else ()), *behind]
    else:
        letters = "".join(terms).replace(".", "")
        output = [*every, *sorted(letter for letter in set(letters) if letters.count(letter) == 1)]
    if len(set(output)) < len(output) or not {item for term in results for item in term}.issuperset(output):
        raise Refused(f"its equation '{equation}' does not fit its operands")
    return results, output


@dataclass(frozen=True)
class _Operand:
    """A tensor with the index label of each axis, without duplicates."""

    value: Tensor | np.ndarray[Any, Any]
    labels: tuple[Any, ...]


class _Writer:
    """Emits the steps of one ``Einsum``.

    Args:
        simplifier: Takes the operators.
        name: The name to report.
        lengths: The size of each index.
    """

    def __init__(self, simplifier: Simplifier, name: str, lengths: dict[Any, int]) -> None:
        self.simplifier, self.name, self.lengths = simplifier, name, lengths

    def emit(self, operator: str, *inputs: Value, **attributes: Any) -> Any:
        return self.simplifier.emit(operator, *inputs, name=self.name, **attributes)

    def operand(self, value: Value, term: Sequence[Any]) -> _Operand:
        """An operand without broadcast axes, and with the diagonal of an index that occurs twice."""
        labels = list(term)
        for label in dict.fromkeys(labels):
            if labels.count(label) > 1:
                value, labels = self._diagonal(value, labels, label)
        shape = value.shape  # type: ignore[union-attr]
        kept = [i for i, label in enumerate(labels) if shape[i] == self.lengths[label]]
        return _Operand(self.reshaped(value, [shape[i] for i in kept]), tuple(labels[i] for i in kept))

    def _diagonal(self, value: Any, labels: list[Any], label: Any) -> tuple[Value, list[Any]]:
        """The diagonal over all axes of an index."""
        axes = [i for i, item in enumerate(labels) if item == label]
        others = [i for i, item in enumerate(labels) if item != label]
        shape = value.shape
        size = shape[axes[0]]
        if any(shape[i] != size for i in axes):
            raise Refused(f"its index '{label}' has two sizes in one operand")
        flat = self.reshaped(self.transposed(value, [*others, *axes]), [*(shape[i] for i in others), size ** len(axes)])
        step = sum(size**i for i in range(len(axes)))
        return self.emit("Gather", flat, np.arange(size) * step, axis=len(others)), [
            *(labels[i] for i in others),
            label,
        ]

    def reshaped(self, value: Any, shape: Sequence[int]) -> Any:
        """A reshaped value."""
        return value if tuple(shape) == value.shape else self.emit("Reshape", value, np.array(shape, np.int64))

    def transposed(self, value: Any, order: Sequence[int]) -> Any:
        """A transposed value."""
        return value if list(order) == list(range(len(order))) else self.emit("Transpose", value, perm=list(order))

    def summed(self, operand: _Operand, needed: set[Any]) -> _Operand:
        """An operand, summed over the indices that occur nowhere else."""
        axes = [i for i, label in enumerate(operand.labels) if label not in needed]
        if not axes:
            return operand
        total = self.emit("ReduceSum", operand.value, np.array(axes, np.int64), keepdims=0)
        return _Operand(total, tuple(label for label in operand.labels if label in needed))

    def product(self, left: _Operand, right: _Operand, needed: set[Any]) -> _Operand:
        """The product of two operands, summed over their common indices that are not needed later."""
        both = [label for label in left.labels if label in right.labels]
        batch = [item for item in both if item in needed]
        inner = [item for item in both if item not in needed]
        rows = [label for label in left.labels if label not in both]
        columns = [label for label in right.labels if label not in both]
        a = self.transposed(left.value, [left.labels.index(row) for row in (*batch, *rows, *inner)])
        b = self.transposed(right.value, [right.labels.index(column) for column in (*batch, *inner, *columns)])
        sizes = [[self.lengths[label] for label in labels] for labels in (batch, rows, inner, columns)]
        batches, heights, depths, widths = sizes
        if inner:
            a = self.reshaped(a, [*batches, prod(heights), prod(depths)])
            b = self.reshaped(b, [*batches, prod(depths), prod(widths)])
            product = self.emit("MatMul", a, b)
        else:
            a = self.reshaped(a, [*batches, *heights, *[1] * len(columns)])
            b = self.reshaped(b, [*batches, *[1] * len(rows), *widths])
            product = self.emit("Mul", a, b)
        product = self.reshaped(product, [*batches, *heights, *widths])
        return _Operand(product, (*batch, *rows, *columns))

    def ordered(self, operand: _Operand, output: Sequence[Any]) -> Value:
        """The result in the order of the output; axes that no operand has are of size 1."""
        present = [value for value in output if value in operand.labels]
        moved = self.transposed(operand.value, [operand.labels.index(item) for item in present])
        ordered: Value = self.reshaped(moved, [self.lengths[value] for value in output])
        return ordered


#: Operator -> its expansion.
EXPANSIONS: dict[str, Expansion] = {"Einsum": einsum}
