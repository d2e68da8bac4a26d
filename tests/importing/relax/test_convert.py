from __future__ import annotations

import numpy as np
import pytest

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.importing.graph import Graph, Node, Tensor
from tvm_gnn_cost.importing.relax import importer  # noqa: F401 - the rules
from tvm_gnn_cost.importing.relax.convert import to_relax


def tensor(name: str, *shape: int, dtype: str = "float32") -> Tensor:
    return Tensor(name, np.dtype(dtype), shape)


def test_parameters_have_the_inputs_names_in_their_order() -> None:
    x, y, z = tensor("layer/x:0", 2), tensor("layer/x_0", 2), tensor("z", 2)
    graph = Graph((x, y), (("z", z),), (Node("Add", 14, "add", (y, x), (z,)),))
    assert [str(parameter.name) for parameter in to_relax(graph, "net")["main"].params] == ["layer_x_0", "layer_x_0_"]


def test_outputs_that_are_inputs_or_constants() -> None:
    x = tensor("x", 2)
    mod = to_relax(Graph((x,), (("a", x), ("b", np.ones(3)), ("c", x)), ()), "net")
    assert [int(size) for size in mod["main"].ret_ty.fields[1].shape] == [3]


def test_an_output_without_elements_needs_no_constant() -> None:
    mod = to_relax(Graph((tensor("x", 2),), (("none", np.zeros((3, 0), np.int64)),), ()), "net")
    assert "metadata" not in mod.script()
    assert [int(size) for size in mod["main"].ret_ty.shape] == [3, 0]


def test_types_of_16_bits_are_rounded_behind_each_operator() -> None:
    x, y, z = (tensor(name, 2, dtype="float16") for name in "xyz")
    nodes = (Node("Exp", 13, "exp", (x,), (y,)), Node("Neg", 13, "neg", (y,), (z,)))
    mod = to_relax(Graph((x,), (("z", z),), nodes), "net")
    assert str(mod["main"].ret_ty.dtype) == "float16"
    assert mod.script().count("astype(") == 4


def test_what_a_rule_does_not_cover_is_named_for_all_operators() -> None:
    x, y, z = tensor("x", 2, 2), tensor("y", 2, 2), tensor("z", 2, 2)
    nodes = (
        Node("Pad", 13, "first", (x, np.zeros(4, np.int64)), (y,), {"mode": "mirror"}),
        Node("Pad", 13, "second", (y, np.array([1, 0, 0, 0])), (z,), {"mode": "mirror"}),
        Node("Mod", 13, "third", (x, y), (tensor("w", 3),), {"fmod": 1}),
    )
    with pytest.raises(InputError, match=r"Pad \('second'\): mode 'mirror' is unknown; operator Mod \('third'\): "):
        to_relax(Graph((x,), (("z", z),), nodes), "net")
