"""Runs built programs on this machine, one at a time, so that they do not disturb each other."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.runner.local_runner import _worker_func

from tvm_gnn_cost.datasets.failure import Failure
from tvm_gnn_cost.measuring.exclusive import machine_to_itself
from tvm_gnn_cost.schedulers.meta_schedule.builder import Built
from tvm_gnn_cost.schedulers.meta_schedule.cold import run_cold
from tvm_gnn_cost.schedulers.scheduler import MeasureSettings, Outcome


@cache
def exclusive_runner(settings: MeasureSettings) -> ExclusiveRunner:
    """The runner for these settings; there is one, because its worker process takes seconds to start."""
    return ExclusiveRunner(settings)


@derived_object
class ExclusiveRunner(ms.runner.PyRunner):  # type: ignore[misc]
    """A ``LocalRunner`` that lets no other process on this machine measure while it runs programs.

    Args:
        settings: How programs are measured.
    """

    def __init__(self, settings: MeasureSettings) -> None:
        super().__init__()
        self.settings = settings
        evaluator = ms.runner.EvaluatorConfig(1, settings.repeats, settings.min_repeat_ms, True)
        self.local = ms.runner.LocalRunner(
            timeout_sec=settings.timeout_s, evaluator_config=evaluator, f_run_evaluator=run_cold
        )

    def run(self, runner_inputs: list[ms.runner.RunnerInput]) -> list[ms.runner.RunnerFuture]:
        """Runs a batch; MetaSchedule calls this and reads failures from the results' messages."""
        with machine_to_itself():
            futures: list[ms.runner.RunnerFuture] = self.local.run(runner_inputs)
        return futures

    def run_built(self, candidates: Sequence[ms.MeasureCandidate], built: Sequence[Built]) -> list[Outcome]:
        """Runs built candidates, tells the kinds of failure apart, and removes the artifacts."""
        with machine_to_itself():
            return [self._outcome(candidate, one) for candidate, one in zip(candidates, built, strict=True)]

    def _outcome(self, candidate: ms.MeasureCandidate, built: Built) -> Outcome:
        if built.artifact is None:
            return Outcome((), built.failure, built.message)
        try:
            return Outcome(tuple(map(float, self._seconds(candidate, built.artifact))))
        except TimeoutError:
            return Outcome((), Failure.RUN_TIMEOUT, f"not done within {self.settings.timeout_s} seconds")
        # The worker passes on whatever the program raised, and fails itself where the program crashed it.
        except Exception as error:
            return Outcome((), Failure.RUN_ERROR, str(error))
        finally:
            shutil.rmtree(Path(built.artifact).parent, ignore_errors=True)

    def _seconds(self, candidate: ms.MeasureCandidate, artifact: str) -> Any:
        """Runs one program as ``LocalRunner.run`` does, but raises its error instead of turning it into text."""
        arguments = tuple(info.as_json() for info in candidate.args_info)
        local = self.local
        functions = (local.f_alloc_argument, local.f_run_evaluator, local.f_cleanup)
        future = local.pool.submit(
            _worker_func, *functions, local.evaluator_config, local.alloc_repeat, artifact, "cpu", arguments
        )
        return future.result()
