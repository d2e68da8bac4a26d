from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from tvm_gnn_cost.lowering.layouts import legalize
from tvm_gnn_cost.lowering.parameters import Parameters, parameters
from tvm_gnn_cost.measuring.arguments import Argument

INDICES, TABLE = np.zeros((5,), np.int64), np.ones((20, 8), np.float32)


def read(build: Callable[..., relax.Expr], *data: Any) -> Parameters:
    """The parameters of the function of a network with these inputs."""
    builder = relax.BlockBuilder()
    given = [relax.Var(f"x{i}", relax.TensorType(item.shape, str(item.dtype))) for i, item in enumerate(data)]
    with builder.function("main", given):
        with builder.dataflow():
            result = builder.emit_output(builder.emit(build(*given)))
        builder.emit_func_output(result)
    functions = [
        item for _, item in legalize(builder.get())[0].functions_items() if isinstance(item, tvm.tirx.PrimFunc)
    ]
    return parameters(functions[0])


def bounds(result: Parameters) -> list[int]:
    return [argument.bound for argument in result.arguments]


def test_a_product_writes_its_last_parameter() -> None:
    result = read(relax.op.matmul, np.ones((4, 8), np.float32), np.ones((8, 6), np.float32))
    assert result.arguments == (
        Argument("float32", (4, 8)),
        Argument("float32", (8, 6)),
        Argument("float32", (4, 6), written=True),
    )
    assert (result.dtypes, result.terms, result.work) == (("float32",), 8, 4 * 8 * 6)


def test_indices_are_below_what_they_index() -> None:
    assert bounds(read(lambda t, i: relax.op.take(t, i, 0), TABLE, INDICES)) == [0, 20, 0]
    assert bounds(read(lambda t, i: relax.op.take(t, i, 1), TABLE, INDICES)) == [0, 8, 0]
    assert bounds(read(relax.op.gather_nd, TABLE, INDICES.reshape(5, 1))) == [0, 20, 0]
    assert bounds(read(lambda t, i: relax.op.gather_elements(t, i, 0), TABLE, np.zeros((3, 8), np.int64)))[1] == 20
    scattered = read(relax.op.scatter_elements, TABLE, np.zeros((2, 8), np.int64), np.ones((2, 8), np.float32))
    assert 1 < bounds(scattered)[1] <= 20
    assert scattered.arguments[-1].written


def test_what_is_computed_from_an_index_is_one() -> None:
    source = """
@T.prim_func(s_tir=True)
def main(t: T.Buffer((20,), "float32"), i: T.Buffer((5,), "int64"), o: T.Buffer((5,), "float32")):
    with T.sblock("root"):
        j = T.sblock_alloc_buffer((5,), "int32")
        k = T.sblock_alloc_buffer((5,), "int32")
        for a in range(5):
            with T.sblock("j"):
                v = T.axis.spatial(5, a)
                j[v] = T.Cast("int32", i[v])
        for a in range(5):
            with T.sblock("k"):
                v = T.axis.spatial(5, a)
                k[v] = T.max(j[v], 0)
        for a in range(5):
            with T.sblock("o"):
                v = T.axis.spatial(5, a)
                o[v] = t[k[v]]
"""
    results = parameters(tvm.script.from_source(source, {"T": tvm.script.tirx}))
    assert bounds(results) == [0, 20, 0]
    assert results.dtypes == ("float32", "int32", "int64")


def test_integers_that_index_nothing_have_no_bound() -> None:
    assert bounds(read(relax.op.add, INDICES, INDICES)) == [0, 0, 0]


def test_roundings_and_decisions_are_noticed() -> None:
    x = np.ones((4, 8), np.float32)
    for build in (relax.op.round, relax.op.floor, lambda x: relax.op.astype(x, "int8")):
        assert read(build, x).rounds
    assert read(lambda x: relax.op.greater(x, relax.const(0.5)), x).rounds
    for build in (relax.op.nn.relu, relax.op.exp, lambda x: relax.op.astype(x, "float16")):
        assert not read(build, x).rounds
    assert not read(relax.op.matmul, x, np.ones((8, 6), np.float32)).rounds
