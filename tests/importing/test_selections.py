from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.importing.relax.against_onnxruntime import check
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.schedulers.installed import has

pytestmark = pytest.mark.skipif(not has("s_tir"), reason="needs today's TVM")

X = np.arange(12, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize("attributes", [{}, {"axis": 0}, {"axis": -1}])
def test_compress_by_a_constant(attributes: dict[str, int]) -> None:
    node = helper.make_node("Compress", ["x", "c"], ["y"], **attributes)
    check(node, {"x": X}, constants={"c": np.array([False, True, True])})


@pytest.mark.parametrize("operator", ["NonZero", "Unique"])
def test_unknown_sizes_are_refused(operator: str) -> None:
    with pytest.raises(InputError, match=rf"{operator} .*: the size of its output depends on values"):
        check(helper.make_node(operator, ["x"], ["y"]), {"x": X}, wanted=[])
