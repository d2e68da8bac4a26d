"""The range of the integers that a network takes: what is used as an index lies within the tensor that it indexes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tvm_gnn_cost.importing.graph import Graph, Node, Tensor

#: Operators that pass the values of their first operand on.
_PASSED_ON = frozenset(
    ("Cast", "Reshape", "Unsqueeze", "Squeeze", "Flatten", "Transpose", "Expand", "Slice", "Tile", "Split", "Identity")
)


def index_limits(graph: Graph) -> dict[str, int]:
    """For each input that is used as an index, the number of rows of the smallest tensor that it indexes.

    Args:
        graph: The network.

    Returns:
        Name of the input -> its values must be less than this; inputs that index nothing are missing.
    """
    limits: dict[Tensor, int] = {}
    for node in reversed(graph.nodes):
        for tensor, limit in _read(node, limits).items():
            limits[tensor] = min(limit, limits.get(tensor, limit))
    return {one.name: limits[one] for one in graph.inputs if one in limits and one.dtype.kind in "iu"}


def _read(node: Node, limits: Mapping[Tensor, int]) -> dict[Tensor, int]:
    """The limits of a node's operands, from those of its outputs."""
    tensors = [one for one in node.inputs if isinstance(one, Tensor)]
    if node.operator in ("Gather", "GatherElements", "ScatterElements"):
        data, index = node.inputs[0], node.inputs[1]
        found = {}
        if isinstance(index, Tensor) and data is not None and data.shape:
            found[index] = max(1, data.shape[int(node.attributes.get("axis", 0))])
        if node.outputs[0] in limits and isinstance(data, Tensor):
            found[data] = limits[node.outputs[0]]
        return found
    if node.operator in ("GatherND", "ScatterND"):
        data, index = node.inputs[0], node.inputs[1]
        if isinstance(index, Tensor) and data is not None and index.shape:
            first = int(node.attributes.get("batch_dims", 0))
            return {index: max(1, min(data.shape[first : first + index.shape[-1]]))}
        return {}
    known = [limits[one] for one in node.outputs if one in limits]
    if not known:
        return {}
    limit = min(known)
    if node.operator in _PASSED_ON:
        return dict.fromkeys(tensors[:1], limit)
    if node.operator in ("Concat", "Where", "Max", "Min", "Clip"):
        values = tensors[1:] if node.operator == "Where" and isinstance(node.inputs[0], Tensor) else tensors
        return dict.fromkeys(values, limit)
    if node.operator == "Add":
        # An offset, as of positions.
        added = sum(int(np.max(one)) for one in node.inputs if isinstance(one, np.ndarray) and one.size)
        share = (limit - 1 - added) // max(1, len(tensors)) + 1
        return dict.fromkeys(tensors, max(1, share))
    return {}
