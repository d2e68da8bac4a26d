from __future__ import annotations

import time

from tests.schedulers.building import build, process
from tvm_gnn_cost.datasets.records import Failure
from tvm_gnn_cost.measuring.machine import usable_cores
from tvm_gnn_cost.schedulers.build_pool import BuildPool, Built


def test_what_fails_has_a_kind_and_the_others_are_built_in_order() -> None:
    pool = BuildPool(build, timeout_s=20)
    first, fail, crash, *rest = pool.build(["one", "fail", "crash", "two", "three"])
    assert [first, *rest] == [Built(name, seconds=1.5) for name in ("one", "two", "three")]
    assert (fail.artifact, fail.failure) == (None, Failure.BUILD_ERROR)
    assert "this is no program" in fail.message
    assert (crash.artifact, crash.failure) == (None, Failure.BUILD_ERROR)
    assert crash.message == "Subprocess terminated"
    assert pool.build([]) == []


def test_what_takes_too_long_has_a_kind_and_the_pool_goes_on() -> None:
    pool = BuildPool(build, timeout_s=1)
    (hang,) = pool.build(["hang"])
    assert hang == Built(None, Failure.BUILD_TIMEOUT, "not built within 1 seconds", 1)
    assert pool.build(["one"]) == [Built("one", seconds=1.5)]


def test_the_processes_start_before_they_are_needed() -> None:
    pool, start = BuildPool(process), time.monotonic()
    pool.start()
    # Importing TVM takes longer.
    assert time.monotonic() - start < 0.5
    assert len({one.artifact for one in pool.build([""] * 8)}) <= usable_cores()


def test_the_processes_outlive_a_batch() -> None:
    pool = BuildPool(process)
    batches = [{one.artifact for one in pool.build([""] * 4 * usable_cores())} for _ in range(3)]
    assert len(set.union(*batches)) <= usable_cores()
