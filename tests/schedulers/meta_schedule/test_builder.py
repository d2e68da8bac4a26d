from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm.s_tir import meta_schedule as ms

from tests.schedulers.meta_schedule.programs import broken, good
from tvm_gnn_cost.datasets.records import Failure
from tvm_gnn_cost.schedulers.build_pool import BuildPool
from tvm_gnn_cost.schedulers.meta_schedule.builder import PooledBuilder, Program, build_and_export, build_program


def test_a_program_is_built_as_it_is(target: Any) -> None:
    a, b = (tvm.runtime.tensor(np.arange(16, dtype=np.float32)) for _ in range(2))
    build_program(good().sch.mod, target)["main"](a, b)
    np.testing.assert_array_equal(b.numpy(), np.arange(16) + 1)


def test_a_failed_build_has_a_kind_and_the_others_go_on(build_pool: BuildPool[Program], target: Any) -> None:
    one, bad, two = build_pool.build([Program(one.sch.mod, target) for one in (good(), broken(), good())])
    for built in (one, two):
        assert (built.failure, built.message) == (None, "")
        assert built.artifact is not None
        assert [path.name for path in Path(built.artifact).parent.iterdir()] == [Path(built.artifact).name]
        tvm.runtime.load_module(built.artifact)
    assert one.artifact != two.artifact
    assert (bad.artifact, bad.failure) == (None, Failure.BUILD_ERROR)
    assert "not implemented" in bad.message


def test_a_build_that_takes_too_long_has_a_kind(target: Any) -> None:
    (built,) = BuildPool(build_and_export, timeout_s=1e-3).build([Program(good().sch.mod, target)])
    assert (built.artifact, built.failure) == (None, Failure.BUILD_TIMEOUT)
    assert built.message == "not built within 0.001 seconds"


def test_metaschedule_gets_paths_and_messages(build_pool: BuildPool[Program], target: Any) -> None:
    inputs = [ms.builder.BuilderInput(one.sch.mod, target) for one in (good(), broken())]
    built, bad = PooledBuilder(build_pool).build(inputs)
    assert Path(str(built.artifact_path)).is_file()
    assert built.error_msg is None
    assert bad.artifact_path is None
    assert str(bad.error_msg).startswith("build-error: ")
    assert isinstance(PooledBuilder().build_pool, BuildPool)
