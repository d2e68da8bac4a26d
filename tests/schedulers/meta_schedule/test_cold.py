from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm
from tvm import te
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.schedulers.meta_schedule.cold import run_cold

#: Fits into the second cache of any processor, and takes long to fetch from memory.
VALUES = 1 << 16


@pytest.fixture(scope="module")
def program() -> Any:
    """Adds up weights; takes microseconds."""
    data, weights = te.placeholder((16,), "float32", "data"), te.placeholder((VALUES // 16, 16), "float32", "weights")
    k = te.reduce_axis((0, VALUES // 16), "k")
    sums = te.compute((16,), lambda i: te.sum(data[i] * weights[k, i], axis=k), name="sums")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([data, weights, sums]))
    block = schedule.get_sblock("sums")
    i, k = schedule.get_loops(block)
    schedule.reorder(k, i)
    schedule.vectorize(i)
    schedule.decompose_reduction(block, k)
    return tvm.compile(schedule.mod, target="llvm").mod


@pytest.fixture(scope="module")
def arguments() -> list[Any]:
    shapes = ((16,), (VALUES // 16, 16), (16,))
    return [tvm.runtime.tensor(np.ones(shape, np.float32)) for shape in shapes]


def test_a_repeat_has_one_latency(program: Any, arguments: list[Any]) -> None:
    for repeats in (1, 3):
        found = run_cold(program, tvm.cpu(), ms.runner.EvaluatorConfig(1, repeats, 1, True), [arguments])
        assert len(found) == repeats
        assert all(0 < seconds < 1 for seconds in found)


def test_weights_are_fetched_from_memory(program: Any, arguments: list[Any]) -> None:
    warm = min(program.time_evaluator("main", tvm.cpu(), number=100, repeat=10)(*arguments).results)
    cold = min(run_cold(program, tvm.cpu(), ms.runner.EvaluatorConfig(1, 10, 1, True), [arguments]))
    assert cold > 1.3 * warm
