from __future__ import annotations

from pathlib import Path
from typing import Any

from tvm.s_tir import meta_schedule as ms

from tests.schedulers.conftest import QUICK
from tests.schedulers.meta_schedule.programs import crashing, good
from tvm_gnn_cost.datasets.records import Failure
from tvm_gnn_cost.schedulers.build_pool import BuildPool, Built
from tvm_gnn_cost.schedulers.meta_schedule.builder import Program
from tvm_gnn_cost.schedulers.meta_schedule.runner import ExclusiveRunner, run_built
from tvm_gnn_cost.schedulers.scheduler import MeasureSettings


def build(pool: BuildPool[Program], target: Any, candidates: list[Any]) -> list[Built]:
    return pool.build([Program(candidate.sch.mod, target) for candidate in candidates])


def test_a_program_that_crashes_has_failed_and_the_next_one_runs(build_pool: BuildPool[Program], target: Any) -> None:
    candidates = [good(), crashing(), good()]
    built = build(build_pool, target, candidates)
    first, crash, last = run_built(candidates, built, QUICK)
    for outcome in (first, last):
        assert outcome.failure is None
        assert len(outcome.seconds) == 2
        assert 0 < outcome.latency < 1
    assert (crash.failure, crash.seconds) == (Failure.RUN_ERROR, ())
    assert crash.message
    assert not any(Path(str(one.artifact)).parent.exists() for one in built)


def test_a_program_that_runs_too_long_has_failed(build_pool: BuildPool[Program], target: Any) -> None:
    candidates = [good()]
    settings = MeasureSettings(repeats=1_000_000, timeout_s=1.5)
    (outcome,) = run_built(candidates, build(build_pool, target, candidates), settings)
    assert (outcome.failure, outcome.seconds) == (Failure.RUN_TIMEOUT, ())
    assert outcome.message == "not done within 1.5 seconds"


def test_a_failed_build_is_not_run() -> None:
    (outcome,) = run_built([good()], [Built(None, Failure.BUILD_TIMEOUT, "too slow")], QUICK)
    assert (outcome.failure, outcome.message, outcome.seconds) == (Failure.BUILD_TIMEOUT, "too slow", ())


def test_metaschedule_gets_results_and_messages(build_pool: BuildPool[Program], target: Any) -> None:
    candidates = [good(), crashing()]
    inputs = [
        ms.runner.RunnerInput(one.artifact, "cpu", candidate.args_info)
        for candidate, one in zip(candidates, build(build_pool, target, candidates), strict=True)
    ]
    ran, crash = (future.result() for future in ExclusiveRunner(QUICK).run(inputs))
    assert ran.error_msg is None
    assert len(ran.run_secs) == 2
    assert crash.error_msg == "the program crashed"
