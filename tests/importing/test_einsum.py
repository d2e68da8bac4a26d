from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.importing.relax.against_onnxruntime import check, model_of
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.installed import has

pytestmark = pytest.mark.skipif(not has("s_tir"), reason="needs today's TVM")

SIZES = {"b": 2, "h": 3, "q": 4, "k": 5, "d": 6, "i": 3, "j": 4, "A": 2}
EQUATIONS = [
    *("bhqd,bhkd->bhqk", "bqhd,bkhd->bhqk", "bhqk,bkhd->bqhd", "ij,jk", "ij->ji", "ii->i", "ii", "i,i", "i,j->ij"),
    *("bij,bjk,bkd->bid", "ij,ij->i", "iAi->Ai", "ijij->ij", "ij,kd->id", "ij,jk,kd->d", " i j , j -> i", "ik,jk->"),
]


@pytest.mark.parametrize("equation", EQUATIONS)
def test_letters(equation: str) -> None:
    terms = equation.replace(" ", "").partition("->")[0].split(",")
    shapes = [tuple(SIZES[letter] for letter in term) for term in terms]
    _check(equation, *shapes)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("...ij,...jk->...ik", [(2, 1, 3, 4), (5, 4, 5)]),
        ("...ij->...", [(2, 3, 4)]),
        ("b...i,ij->b...j", [(2, 7, 3), (3, 4)]),
        ("...,...", [(2, 3), (1, 3)]),
        ("bi,bi->b", [(2, 3), (1, 3)]),
        ("i,->i", [(3,), ()]),
    ],
)
def test_ellipses_and_broadcast_sizes(equation: str, shapes: list[tuple[int, ...]]) -> None:
    _check(equation, *shapes)


def _check(equation: str, *shapes: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    inputs = {f"x{i}": rng.standard_normal(shape).astype(np.float32) for i, shape in enumerate(shapes)}
    node = helper.make_node("Einsum", list(inputs), ["y"], equation=equation)
    wanted = np.asarray(np.einsum(equation, *inputs.values()), np.float32)
    check(node, inputs, wanted=[wanted], rtol=1e-4, atol=1e-5)


def test_attention_is_a_product_of_matrices() -> None:
    from tvm_gnn_cost.importing.relax.importer import simplified

    inputs = {name: np.zeros((2, 3, 4, 5), np.float32) for name in "xy"}
    node = helper.make_node("Einsum", ["x", "y"], ["z"], equation="bhqd,bhkd->bhqk")
    assert [item.operator for item in simplified(model_of(node, inputs), "model").nodes] == ["Transpose", "MatMul"]


def test_two_sizes_of_an_index_are_refused() -> None:
    inputs = {"x": np.zeros((2, 3), np.float32), "y": np.zeros((4, 2), np.float32)}
    with pytest.raises(InputError, match="its index 'j' has two sizes, 3 and 4"):
        check(helper.make_node("Einsum", ["x", "y"], ["z"], equation="ij,jk->ik"), inputs, wanted=[])
