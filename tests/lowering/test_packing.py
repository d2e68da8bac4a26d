from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
import tvm
from torch import nn
from tvm import relax
from tvm.relax.frontend.torch import from_exported_program
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.lowering import packing
from tvm_gnn_cost.lowering.corrections import correct
from tvm_gnn_cost.lowering.layouts import legalize
from tvm_gnn_cost.lowering.packing import prepack
from tvm_gnn_cost.schedulers.meta_schedule.networks import extract_tasks
from tvm_gnn_cost.schedulers.meta_schedule.preload import import_tensor_intrin
from tvm_gnn_cost.schedulers.meta_schedule.sampling import sample_random
from tvm_gnn_cost.schedulers.meta_schedule.target import local_target
from tvm_gnn_cost.schedulers.meta_schedule.work_dir import commit
from tvm_gnn_cost.schedulers.scheduler import Outcome


def network() -> tuple[tvm.IRModule, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU6(), nn.Conv2d(16, 32, 1), nn.Hardtanh(-1.0, 0.5))
    image = torch.randn(1, 3, 10, 10)
    exported = torch.export.export(module.eval(), (image,))
    mod = correct(from_exported_program(exported, unwrap_unit_return_tuple=True))
    return mod, image, module(image).detach()


def output(mod: tvm.IRModule, image: torch.Tensor) -> np.ndarray:  # type: ignore[type-arg]
    machine = relax.VirtualMachine(tvm.compile(mod, target=local_target()), tvm.cpu())
    result: np.ndarray = machine["main"](tvm.runtime.tensor(image.numpy())).numpy()  # type: ignore[type-arg]
    return result


def test_weights_are_packed_when_the_network_is_compiled() -> None:
    import_tensor_intrin()
    mod, image, expected = network()
    legal, target = legalize(mod)[0], local_target()
    schedules = ms.database.MemoryDatabase()
    for task in extract_tasks(legal, target):
        if "conv2d" in task.name:
            commit(schedules, task, sample_random(task, target, 1, seed=0), [Outcome((1.0,))], target)
    with target, schedules:
        scheduled = relax.transform.MetaScheduleApplyDatabase()(legal)
    assert "layout_rewrite_preproc" in scheduled.script()
    packed = prepack(scheduled, target)
    assert "layout_rewrite_preproc" not in packed.script()
    np.testing.assert_allclose(output(packed, image), expected, atol=1e-5)


def free(build: Callable[..., relax.Expr], data: np.ndarray, weight: np.ndarray) -> list[list[int]]:  # type: ignore[type-arg]
    """The shapes of the parameters that are free in a network of one operator on data and a constant."""
    builder = relax.BlockBuilder()
    given = relax.Var("data", relax.TensorType(data.shape, str(data.dtype)))
    with builder.function("main", [given]):
        with builder.dataflow():
            results = builder.emit_output(builder.emit(build(given, relax.const(weight))))
        builder.emit_func_output(results)
    functions = [
        item for _, item in legalize(builder.get())[0].functions_items() if isinstance(item, tvm.tirx.PrimFunc)
    ]
    return [
        [int(size) for size in function.params[int(i)].shape]
        for function in functions
        for i in function.attrs["layout_free_buffers"]
    ]


FLOATS = np.ones((4, 8), np.float32)


@pytest.mark.parametrize(
    ("build", "data", "weight"),
    [
        (relax.op.matmul, FLOATS, np.ones((8, 6), np.float32)),
        (relax.op.matmul, np.ones((3, 4, 8), np.float32), np.ones((3, 8, 6), np.float32)),
        (partial(relax.op.nn.conv2d, padding=1), np.ones((1, 4, 6, 6), np.float32), np.ones((8, 4, 3, 3), np.float32)),
        (partial(relax.op.nn.conv2d, groups=2), np.ones((1, 4, 6, 6), np.float32), np.ones((8, 2, 3, 3), np.float32)),
        (partial(relax.op.nn.conv2d, groups=4), np.ones((1, 4, 6, 6), np.float32), np.ones((4, 1, 3, 3), np.float32)),
        (partial(relax.op.matmul, out_dtype="int32"), np.ones((4, 8), np.int8), np.ones((8, 6), np.int8)),
    ],
    ids=["matmul", "batches", "conv2d", "groups", "depthwise", "int8"],
)
def test_the_weights_of_a_sum_of_products_are_free(build: Any, data: Any, weight: Any) -> None:
    (shape,) = free(build, data, weight)
    assert np.prod(shape) == weight.size  # groups have an axis


@pytest.mark.parametrize(
    ("build", "data", "weight"),
    [
        (lambda i, table: relax.op.take(table, i, 0), np.zeros(1, np.int64), np.ones((148, 256), np.float32)),
        (lambda i, table: relax.op.gather_nd(table, i), np.zeros((1, 1), np.int64), np.ones((148, 256), np.float32)),
        (
            lambda x, w: relax.op.nn.conv2d_transpose(x, w, strides=2),
            np.ones((1, 3, 6, 6), np.float32),
            np.ones((3, 4, 2, 2), np.float32),
        ),
        (relax.op.add, FLOATS, np.ones((1, 8), np.float32)),
        (lambda x, w: relax.op.sum(relax.op.multiply(x, w), 1), FLOATS, np.ones((1, 8), np.float32)),
    ],
    ids=["take", "gather_nd", "flipped", "added", "repeated"],
)
def test_other_constants_keep_their_layout(build: Any, data: Any, weight: Any) -> None:
    assert list(weight.shape) not in free(build, data, weight)


def factor(product: str, size: int = 8) -> bool:
    """Whether the weights of a function that adds up this product, with i and j from 0 to 7, are free."""
    source = f"""
@T.prim_func(s_tir=True)
def main(a: T.Buffer((8, 8), "float32"), b: T.Buffer(({size}, {size}), "float32"), c: T.Buffer((8,), "float32")):
    T.func_attr({{"layout_free_buffers": [1]}})
    for i, j in T.grid(8, 8):
        with T.sblock("c"):
            vi, vj = T.axis.remap("SR", [i, j])
            with T.init():
                c[vi] = T.float32(0)
            c[vi] = c[vi] + {product}
"""
    function = tvm.script.from_source(source, {"T": tvm.script.tirx})
    return packing._is_factor(function, function.params[1])


def test_a_weight_is_free_if_each_value_is_read_at_its_own_index() -> None:
    assert factor("a[vi, vj] * b[vi, vj]")
    assert factor("b[vj, vi] * a[vi, vj]")
    assert not factor("a[vi, vj] * b[vi, vi]")
    assert not factor("a[vi, vj] * b[vj, 0]")
    assert not factor("a[vi, vj] * b[vi, 7 - vj]")
    assert not factor("a[vi, vj] * b[vi, (vj + 1) % 8]")
    assert not factor("a[vi, vj] * b[vi, vj]", size=16)
    assert not factor("a[vi, vj] * b[vi, vj * 2]", size=16)
    assert not factor("b[vi, vj] * b[vi, vj]")
    assert not factor("T.max(a[vi, vj], b[vi, vj])")
    assert not factor("a[vi, vj] * (b[vi, vj] - T.float32(1))")
    assert not factor("T.if_then_else(vj < 4, a[vi, vj] * b[vi, vj], T.float32(0))")


def test_a_weight_that_is_reshaped_alone_keeps_its_layout() -> None:
    # TVM's RewriteLayout ends the sampling of such a function with an error.
    import_tensor_intrin()
    exported = torch.export.export(nn.GroupNorm(8, 32).eval(), (torch.randn(1, 32, 7, 7),))
    mod = from_exported_program(exported, unwrap_unit_return_tuple=True)
    (task,) = [task for task in extract_tasks(legalize(mod)[0], local_target()) if "group_norm" in task.name]
    assert not task.workload.dispatched[0]["main"].attrs["layout_free_buffers"]
    assert len(sample_random(task, local_target(), 4, seed=0)) == 4
