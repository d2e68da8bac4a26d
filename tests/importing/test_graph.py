from __future__ import annotations

import numpy as np

from tvm_gnn_cost.importing.graph import Graph, Node, Tensor, live_nodes


def tensor(name: str) -> Tensor:
    return Tensor(name, np.dtype(np.float32), (2,))


def test_nodes_that_no_output_depends_on_are_left_out() -> None:
    x, y, z, w = map(tensor, "xyzw")
    first = Node("Relu", 14, "first", (x,), (y,))
    unused = Node("Relu", 14, "unused", (y,), (w,))
    last = Node("Add", 14, "last", (y, x), (z,))
    assert live_nodes([first, unused, last], [z]) == (first, last)
    assert live_nodes([first, unused, last], [np.zeros(1), x]) == ()


def test_tensors_are_used_as_often_as_they_are_read_and_given_out() -> None:
    x, y = tensor("x"), tensor("y")
    node = Node("Add", 14, "twice", (x, x), (y,))
    assert Graph((x,), (("y", y), ("same", y), ("x", x)), (node,)).uses() == {x: 3, y: 2}
