from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

from tests.lowering.test_parameters import TABLE
from tvm_gnn_cost.lowering.layouts import legalize
from tvm_gnn_cost.lowering.reference import reference


def module(build: Any, *data: Any) -> tvm.IRModule:
    """The module of the only function of a network."""
    builder = relax.BlockBuilder()
    given = [relax.Var(f"x{i}", relax.TensorType(item.shape, str(item.dtype))) for i, item in enumerate(data)]
    with builder.function("main", given):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(build(*given)))
        builder.emit_func_output(result)
    (function,) = [
        item for _, item in legalize(builder.get())[0].functions_items() if isinstance(item, tvm.tirx.PrimFunc)
    ]
    return tvm.IRModule({"main": function.with_attr("global_symbol", "main")})


def floats(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    ("build", "data", "stays"),
    [
        (relax.op.matmul, (floats(256, 256), floats(256, 160)), False),
        (relax.op.nn.softmax, (floats(2500, 2400),), False),
        (relax.op.sum, (floats(2500, 2400),), True),
    ],
    ids=["matmul", "softmax", "sum"],
)
def test_a_large_program_computes_what_it_did(build: Any, data: Any, stays: bool) -> None:
    mod = module(build, *data)
    changed = reference(mod)
    assert tvm_ffi.structural_equal(mod, changed) == stays
    shape = [int(size) for size in mod["main"].params[-1].shape]
    results = []
    for item in (mod, changed):
        out = tvm.runtime.tensor(np.full(shape, 7, np.float32))
        tvm.driver.build(item, target="llvm")["main"](*map(tvm.runtime.tensor, data), out)
        results.append(out.numpy())
    np.testing.assert_allclose(results[1], results[0], rtol=1e-4, atol=1e-4)


def test_a_small_program_and_an_opaque_one_stay_as_they_are() -> None:
    small = module(relax.op.matmul, floats(8, 8), floats(8, 8))
    opaque = module(relax.op.scatter_elements, TABLE, np.zeros((2, 8), np.int64), floats(2, 8))
    for mod in (small, opaque):
        assert tvm_ffi.structural_equal(reference(mod), mod)
