"""Layer normalization as a single function."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.s_tir import Schedule

from tvm_gnn_cost.lowering.blocks import TILED
from tvm_gnn_cost.lowering.layouts import legalize
from tvm_gnn_cost.lowering.row_tiling import RowTiling


def network(shape: tuple[int, ...], axes: list[int], center: bool, scale: bool) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    rng = np.random.default_rng(0)
    parameters = [relax.const(rng.standard_normal([shape[a] for a in axes]).astype(np.float32)) for _ in range(2)]
    with builder.function("main", [x]):
        with builder.dataflow():
            result = relax.op.nn.layer_norm(x, *parameters, axes, 1e-5, center, scale)
            result = builder.emit_output(relax.op.nn.relu(builder.emit(result)))
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize(("shape", "axes"), [((2, 5, 24), [-1]), ((3, 4, 6), [1, 2]), ((7, 33), [1])])
def test_norm_and_activation_are_a_function(shape: tuple[int, ...], axes: list[int], center: bool, scale: bool) -> None:
    lowered, _ = legalize(network(shape, axes, center, scale))
    functions = [function for _, function in lowered.functions_items() if isinstance(function, tvm.tirx.PrimFunc)]
    assert len(functions) == 1
    schedule = Schedule(functions[0])
    first = schedule.get_child_blocks(schedule.get_sblock("root"))[0]
    for each in RowTiling(8)._inst.apply(schedule, first):
        assert TILED in each.get(each.get_sblock("root")).annotations
    # The mean is a thousand times the deviation.
    x = (1000 + np.random.default_rng(1).standard_normal(shape)).astype(np.float32)
    machine = relax.VirtualMachine(tvm.compile(lowered, tvm.target.Target("llvm")), tvm.cpu())
    exact = x.astype(np.float64)
    along = tuple(axes)
    exact = (exact - exact.mean(along, keepdims=True)) / np.sqrt(exact.var(along, keepdims=True) + 1e-5)
    rng = np.random.default_rng(0)
    factor, summand = (rng.standard_normal([shape[axis] for axis in axes]).astype(np.float32) for _ in range(2))
    exact = exact * factor if scale else exact
    exact = exact + summand if center else exact
    np.testing.assert_allclose(machine["main"](tvm.runtime.tensor(x)).numpy(), np.maximum(exact, 0), atol=2e-3)
