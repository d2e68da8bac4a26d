"""A network as a list of primitive ONNX operators: static shapes, folded constants, no control flow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class Tensor:
    """A value that is computed when the network runs.

    Attributes:
        name: Its name in the network, or a generated name.
        dtype: Type of its elements; ``ml_dtypes.bfloat16`` for bfloat16.
        shape: Its shape.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


#: An input or output of an operator: a tensor, a constant, or None for an omitted optional input.
Operand = Tensor | npt.NDArray[Any] | None


@dataclass(frozen=True)
class Node:
    """An operator of a network.

    Attributes:
        operator: Its ONNX name, prefixed by its domain and a colon if that is not ONNX's.
        version: The operator set version of its definition.
        name: Its name in the network, or that of the operator that it was expanded from.
        inputs: Its operands.
        outputs: The tensors that it computes.
        attributes: Attributes by name, including defaults.
    """

    operator: str
    version: int
    name: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Tensor, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Graph:
    """A network.

    Attributes:
        inputs: The inputs, in order.
        outputs: Names and values of the outputs, in order: tensors, inputs or constants.
        nodes: Its operators in topological order.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[tuple[str, Tensor | npt.NDArray[Any]], ...]
    nodes: tuple[Node, ...]

    def uses(self) -> Counter[Tensor]:
        """Number of uses of each tensor, outputs included."""
        read = (operand for node in self.nodes for operand in node.inputs)
        return Counter(output for output in (*read, *(item for _, item in self.outputs)) if isinstance(output, Tensor))


def live_nodes(nodes: Sequence[Node], outputs: Sequence[Operand]) -> tuple[Node, ...]:
    """The nodes that an output depends on, in order."""
    needed = {output for output in outputs if isinstance(output, Tensor)}

    def backwards() -> Iterator[Node]:
        for node in reversed(nodes):
            if not needed.isdisjoint(node.outputs):
                needed.update(operand for operand in node.inputs if isinstance(operand, Tensor))
                yield node

    return tuple(backwards())[::-1]
