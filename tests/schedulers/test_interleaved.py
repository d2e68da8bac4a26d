from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvm_gnn_cost.schedulers import interleaved
from tvm_gnn_cost.schedulers.interleaved import run_interleaved
from tvm_gnn_cost.schedulers.machines import ThisMachine

pytestmark = pytest.mark.needs("s_tir")

#: Fits into the second cache of any processor, and takes long to fetch from memory.
VALUES = 1 << 16

INFOS = (("TENSOR", "float32", (16,)), ("TENSOR", "float32", (VALUES // 16, 16)), ("TENSOR", "float32", (16,)))


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Any]:
    """Adds up weights; takes microseconds."""
    import tvm
    from tvm import te

    data, weights = te.placeholder((16,), "float32", "data"), te.placeholder((VALUES // 16, 16), "float32", "weights")
    k = te.reduce_axis((0, VALUES // 16), "k")
    sums = te.compute((16,), lambda i: te.sum(data[i] * weights[k, i], axis=k), name="sums")
    schedule = tvm.s_tir.Schedule(te.create_prim_func([data, weights, sums]))
    block = schedule.get_sblock("sums")
    i, k = schedule.get_loops(block)
    schedule.reorder(k, i)
    schedule.vectorize(i)
    schedule.decompose_reduction(block, k)
    path = tmp_path_factory.mktemp("program") / "program.so"
    tvm.compile(schedule.mod, target="llvm").mod.export_library(str(path))
    return str(path), INFOS


def test_a_repeat_has_one_latency(program: tuple[str, Any]) -> None:
    for repeats in (1, 3):
        found = run_interleaved([program, program], repeats, 2, ThisMachine())
        assert [len(one) for one in found] == [repeats, repeats]
        assert all(0 < float(seconds) < 1 for one in found for seconds in one)


def test_weights_are_fetched_from_memory(program: tuple[str, Any]) -> None:
    import tvm

    arguments = [tvm.runtime.tensor(np.ones(shape, np.float32)) for _, _, shape in INFOS]
    loaded = tvm.runtime.load_module(program[0])
    warm = min(loaded.time_evaluator(loaded.entry_name, tvm.cpu(), number=100, repeat=10)(*arguments).results)
    ((*cold,),) = run_interleaved([program], 3, 4, ThisMachine())
    assert min(map(float, cold)) > 1.3 * warm
    ((*kept,),) = run_interleaved([program], 3, 4, ThisMachine(), is_warm=True)
    assert min(map(float, kept)) < min(map(float, cold)) / 1.2


def test_a_program_that_raises_an_error_does_not_stop_the_others(program: tuple[str, Any], tmp_path: Path) -> None:
    missing = (str(tmp_path / "none.so"), INFOS)
    wrong = (program[0], INFOS[:1])
    first, second, third = run_interleaved([missing, program, wrong], 2, 2, ThisMachine())
    assert isinstance(first, str)
    assert "none.so" in first
    assert len(second) == 2
    assert isinstance(third, str)


def test_arguments_of_one_size_share_memory() -> None:
    places: dict[Any, Any] = {}
    one = ThisMachine().place(places, 1, ("TENSOR", "float32", (8, 4)))
    two = ThisMachine().place(places, 1, ("TENSOR", "float32", (2, 16)))
    other = ThisMachine().place(places, 2, ("TENSOR", "float32", (8, 4)))
    assert [tuple(map(int, x.shape)) for x in (one, two, other)] == [(8, 4), (2, 16), (8, 4)]
    assert len(places) == 2
    assert (one.numpy() == two.numpy().reshape(8, 4)).all()
    assert not (one.numpy() == other.numpy()).all()


def test_a_program_that_takes_long_leaves_early(program: tuple[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interleaved, "_SECONDS_A_TURN", 0.0)
    (found,) = run_interleaved([program], 5, 3, ThisMachine())
    assert len(found) == 1
