"""A network as a list of primitive ONNX operators: all sizes known, all constants computed, no control flow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, eq=False)
class Tensor:
    """A value that is only known when the network runs.

    Attributes:
        name: Its name in the network, or a derived one.
        dtype: Type of its elements; ``ml_dtypes.bfloat16`` for bfloat16.
        shape: Its sizes.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


#: An input or output of an operator: a tensor, a constant, or None for an optional input that is left out.
Operand = Tensor | npt.NDArray[Any] | None


@dataclass(frozen=True)
class Node:
    """An operator of a network.

    Attributes:
        operator: Its ONNX name, with the domain and a colon before it if that is not ONNX's own.
        version: The operator set version that its definition is from.
        name: The name to report; that of the operator it was expanded from, if it was.
        inputs: Its operands.
        outputs: The tensors that it computes.
        attributes: Attributes by name, those included that have a default.
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
        inputs: What a caller passes, in order.
        outputs: What it returns by name, in order: tensors that the nodes compute, inputs, or constants.
        nodes: Its operators, each after those that it reads.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[tuple[str, Tensor | npt.NDArray[Any]], ...]
    nodes: tuple[Node, ...]

    def uses(self) -> Counter[Tensor]:
        """How often each tensor is read; by a node that reads it twice, and as an output, too."""
        read = (operand for node in self.nodes for operand in node.inputs)
        return Counter(output for output in (*read, *(item for _, item in self.outputs)) if isinstance(output, Tensor))


def live_nodes(nodes: Sequence[Node], outputs: Sequence[Operand]) -> tuple[Node, ...]:
    """The nodes that some output depends on, in their order."""
    needed = {output for output in outputs if isinstance(output, Tensor)}

    def backwards() -> Iterator[Node]:
        for node in reversed(nodes):
            if not needed.isdisjoint(node.outputs):
                needed.update(operand for operand in node.inputs if isinstance(operand, Tensor))
                yield node

    return tuple(backwards())[::-1]
