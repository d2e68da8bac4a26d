from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.importing.models import model
from tests.importing.relax.against_onnxruntime import check
from tvm_gnn_cost.importing.relax.importer import EXPANSIONS, import_onnx, simplified
from tvm_gnn_cost.importing.relax.rules import RULES


def test_no_operator_is_both_kept_and_written_in_others_by_name() -> None:
    assert len(RULES) > 120
    assert "LSTM" in EXPANSIONS
    names = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain == ""}
    known = {item for item in RULES if ":" not in item}
    assert known <= names


def test_a_batch_norm_is_folded_into_the_convolution_before_it() -> None:
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((4, 3, 3, 3)).astype(np.float32),
        **{name: (1 + rng.random(4)).astype(np.float32) for name in ("scale", "offset", "mean", "variance")},
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "scale", "offset", "mean", "variance"], ["n"]),
        helper.make_node("Relu", ["n"], ["y"]),
    ]
    made = model(nodes, {"x": [1, 3, 6, 6]}, ["y"], weights)
    assert [node.operator for node in simplified(made, "net").nodes] == ["Conv", "Relu"]
    pytest.importorskip("onnxruntime")
    check(made, {"x": rng.standard_normal((1, 3, 6, 6)).astype(np.float32)}, rtol=1e-4, atol=1e-5)


def test_sums_of_several_operands_need_no_stack() -> None:
    """ConvertLayout refused every network in which TVM's importer had written a Sum."""
    made = model([helper.make_node("Sum", ["x", "x", "x"], ["y"])], {"x": [2]}, ["y"])
    assert "stack" not in import_onnx(made, "net").script()
