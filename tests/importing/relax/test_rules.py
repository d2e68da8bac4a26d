from __future__ import annotations

import numpy as np
import pytest
from tvm import relax

from tvm_gnn_cost.importing.graph import Node, Tensor
from tvm_gnn_cost.importing.relax.rules import Primitive, Unsupported, positive, sizes


def primitive(*, moves: bool = False) -> Primitive:
    x = Tensor("x", np.dtype(np.float16), (2, 3))
    y = Tensor("y", np.dtype(np.float16), (2, 3))
    node = Node("Some", 1, "some", (x, np.ones(2, np.float16), None), (y,), {"axis": -1, "axes": [0]})
    expression = relax.Var("x", relax.TensorType((2, 3), "float16"))
    return Primitive(node, relax.BlockBuilder(), {x: expression}, moves)


def test_numbers_of_16_bits_are_seen_as_float32_unless_they_only_move() -> None:
    assert primitive().dtype(0) == "float32"
    assert primitive(moves=True).dtype(0) == "float16"
    assert str(primitive().tensor(1).ty.dtype) == "float32"
    assert str(primitive(moves=True).tensor(1).ty.dtype) == "float16"


def test_operands_and_parameters() -> None:
    node = primitive()
    assert [node.has(i) for i in range(4)] == [True, True, False, False]
    assert node.is_constant(1)
    assert node.parameter("axes", 2) == [0]
    assert node.parameter("values", 1) == [1.0, 1.0]
    with pytest.raises(Unsupported, match="its shape must be constant"):
        node.constant(0, "shape")
    with pytest.raises(Unsupported, match="its input 2 is missing"):
        node.tensor(2)


def test_axes() -> None:
    assert positive(-1, 3) == 2
    assert positive(0, 0) == 0
    assert sizes(3) == [3]
    assert sizes([1, 2]) == [1, 2]
