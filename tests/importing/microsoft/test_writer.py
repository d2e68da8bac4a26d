from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.importing.relax.against_onnxruntime import check, model_of, run
from tvm_gnn_cost.errors import InputError

X = {"x": np.linspace(-3, 3, 7, dtype=np.float32)}


@pytest.mark.parametrize("opset", [9, 13, 21])
def test_the_version_of_the_model_does_not_matter(opset: int) -> None:
    """ONNX has Gelu since version 20."""
    node = helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")
    check(node, X, opset=opset, domains={"com.microsoft": 1}, rtol=1e-4)


def test_what_is_behind_is_read_in_the_version_of_the_model() -> None:
    nodes = [
        helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft"),
        helper.make_node("Unsqueeze", ["y"], ["z"], axes=[0]),
    ]
    check(model_of(nodes, X, opset=11, domains={"com.microsoft": 1}), X, rtol=1e-4)


def test_an_operator_without_a_rule_is_refused() -> None:
    node = helper.make_node("BeamSearch", ["x"], ["y"], domain="com.microsoft")
    with pytest.raises(
        InputError, match=r"BeamSearch .*: there is no rule for it, which is of the domain com.microsoft"
    ):
        run(model_of(node, X, domains={"com.microsoft": 1}), X)
