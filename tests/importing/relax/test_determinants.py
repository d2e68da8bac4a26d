from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from tests.importing.relax.against_onnxruntime import check
from tvm_gnn_cost.errors import InputError


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (3, 4, 4), (2, 2, 5, 5)])
def test_small_matrices(shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    check(helper.make_node("Det", ["x"], ["y"]), {"x": x}, rtol=1e-4, atol=1e-5)


def test_large_matrices_are_refused() -> None:
    with pytest.raises(InputError, match="its matrices have more than 5 rows"):
        check(helper.make_node("Det", ["x"], ["y"]), {"x": np.eye(6, dtype=np.float32)})
