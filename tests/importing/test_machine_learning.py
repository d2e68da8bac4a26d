from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper, numpy_helper

from tests.importing.relax.against_onnxruntime import check, model_of
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.installed import has

pytestmark = pytest.mark.skipif(not has("s_tir"), reason="needs today's TVM")

RNG = np.random.default_rng(0)
X = {"x": RNG.standard_normal((6, 4)).astype(np.float32)}
DOMAINS = {"ai.onnx.ml": 3}
WEIGHTS = RNG.standard_normal(12).astype(np.float32).tolist()

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "binary": ("Binarizer", {"threshold": 0.2}),
    "scaled": ("Scaler", {"offset": [0.1, 0.2, 0.3, 0.4], "scale": [2.0, 3.0, 4.0, 5.0]}),
    "by the largest": ("Normalizer", {"norm": "MAX"}),
    "by the sum": ("Normalizer", {"norm": "L1"}),
    "by the length": ("Normalizer", {"norm": "L2"}),
    "linear": ("LinearRegressor", {"targets": 3, "coefficients": WEIGHTS, "intercepts": [0.1, 0.2, 0.3]}),
}


@pytest.mark.parametrize("name", CASES)
def test_rows(name: str) -> None:
    operator, attributes = CASES[name]
    node = helper.make_node(operator, ["x"], ["y"], domain="ai.onnx.ml", **attributes)
    check(node, X, domains=DOMAINS, opset=17, rtol=1e-4)


@pytest.mark.parametrize("last", ["NONE", "SOFTMAX", "LOGISTIC"])
def test_linear_classes(last: str) -> None:
    attributes = {"classlabels_ints": [5, 7, 9], "coefficients": WEIGHTS, "intercepts": [0.1, 0.2, 0.3]}
    node = helper.make_node(
        "LinearClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml", post_transform=last, **attributes
    )
    check(node, X, domains=DOMAINS, opset=17, rtol=1e-4)


def test_columns() -> None:
    node = helper.make_node("ArrayFeatureExtractor", ["x", "i"], ["y"], domain="ai.onnx.ml")
    check(node, X | {"i": np.array([[3, 0, 3]])}, domains=DOMAINS, opset=17)


def drawn_trees(count: int, depth: int, kind: str) -> dict[str, Any]:
    """Full binary trees with drawn comparisons and leaves of drawn weights."""
    names = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    nodes: dict[str, list[Any]] = {f"nodes_{name}": [] for name in names}
    leaves: dict[str, list[Any]] = {f"{kind}_{name}": [] for name in ("treeids", "nodeids", "ids", "weights")}
    modes = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT")
    inner = 2**depth - 1
    for tree in range(count):
        for number in range(2 * inner + 1):
            is_leaf = number >= inner
            mode = "LEAF" if is_leaf else modes[RNG.integers(4)]
            children = (0, 0) if is_leaf else (2 * number + 1, 2 * number + 2)
            values = (tree, number, int(RNG.integers(4)), mode, float(RNG.standard_normal()), *children)
            for key, value in zip(nodes, values, strict=True):
                nodes[key].append(value)
            if is_leaf:
                target, weight = int(RNG.integers(3)), float(RNG.standard_normal())
                for key, value in zip(leaves, (tree, number, target, weight), strict=True):
                    leaves[key].append(value)
    return nodes | leaves


@pytest.mark.parametrize(("count", "depth"), [(1, 1), (5, 3)])
@pytest.mark.parametrize("kind", ["SUM", "AVERAGE"])
def test_regression_trees(count: int, depth: int, kind: str) -> None:
    attributes = drawn_trees(count, depth, "target") | {"n_targets": 3, "aggregate_function": kind}
    node = helper.make_node("TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", **attributes)
    check(node, X, domains=DOMAINS, opset=17, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("last", ["NONE", "SOFTMAX"])
def test_classification_trees(last: str) -> None:
    attributes = drawn_trees(4, 3, "class") | {"classlabels_int64s": [4, 5, 6], "post_transform": last}
    node = helper.make_node("TreeEnsembleClassifier", ["x"], ["label", "scores"], domain="ai.onnx.ml", **attributes)
    check(node, X, domains=DOMAINS, opset=17, rtol=1e-4, atol=1e-5)


def test_a_missing_number_goes_where_the_tree_says() -> None:
    attributes = drawn_trees(3, 3, "target") | {"n_targets": 3}
    count = len(attributes["nodes_modes"])
    tracks = RNG.integers(0, 2, count).tolist()
    node = helper.make_node(
        "TreeEnsembleRegressor", ["x"], ["y"], domain="ai.onnx.ml", nodes_missing_value_tracks_true=tracks, **attributes
    )
    x = np.where(RNG.random((6, 4)) < 0.4, np.nan, X["x"]).astype(np.float32)
    check(node, {"x": x}, domains=DOMAINS, opset=17, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("has_sets", [True, False])
def test_trees_with_numbered_leaves(has_sets: bool) -> None:
    """The tree compares, then looks for members of a set; the file names no operator set of ONNX's own."""
    modes = np.array([0, 6 if has_sets else 3, 1], np.uint8)
    node = helper.make_node(
        "TreeEnsemble", ["x"], ["y"], domain="ai.onnx.ml", n_targets=2, aggregate_function=1, post_transform=0,
        tree_roots=[0], nodes_featureids=[0, 1, 2],
        nodes_modes=numpy_helper.from_array(modes),
        nodes_splits=numpy_helper.from_array(np.array([0.5, 0.25, -0.5], np.float32)),
        nodes_truenodeids=[1, 0, 2], nodes_trueleafs=[0, 1, 1],
        nodes_falsenodeids=[2, 1, 3], nodes_falseleafs=[0, 1, 1],
        leaf_targetids=[0, 1, 0, 1], leaf_weights=numpy_helper.from_array(np.array([1, 2, 3, 4], np.float32)),
        membership_values=numpy_helper.from_array(np.array([1.5, 2.5, np.nan], np.float32)),
    )  # fmt: skip
    x = np.array([[0, 1.5, 0], [0, 0.25, 0], [0.5, 2.5, 0], [1, 0, -0.5], [1, 0, -1]], np.float32)
    second = np.isin(x[:, 1], [1.5, 2.5]) if has_sets else x[:, 1] > 0.25
    leaf = np.where(x[:, 0] <= 0.5, np.where(second, 0, 1), np.where(x[:, 2] < -0.5, 2, 3))
    wanted = np.zeros((5, 2), np.float32)
    wanted[np.arange(5), leaf % 2] = leaf + 1
    model = model_of(node, {"x": x}, domains={"ai.onnx.ml": 5})
    del model.opset_import[0]
    check(model, {"x": x}, wanted=[wanted])


def test_what_cannot_be_is_refused() -> None:
    node = helper.make_node(
        "LinearClassifier",
        ["x"],
        ["y", "z"],
        domain="ai.onnx.ml",
        coefficients=WEIGHTS,
        classlabels_strings=list("abc"),
    )
    with pytest.raises(InputError, match=r"LinearClassifier .* its labels are strings"):
        check(node, X, domains=DOMAINS, wanted=[])
