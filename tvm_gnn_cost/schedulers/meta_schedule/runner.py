"""Runs built candidates, those of a batch in turn, on machines that measure nothing else meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.runner.local_runner import LocalRunnerFuture

from tvm_gnn_cost.schedulers.build_pool import Built
from tvm_gnn_cost.schedulers.scheduler import MeasureSettings, Outcome
from tvm_gnn_cost.schedulers.turn_runner import BuiltProgram, turn_runner


def run_built(
    candidates: Sequence[ms.MeasureCandidate], built: Sequence[Built], settings: MeasureSettings
) -> list[Outcome]:
    """Runs built candidates of a task and removes the artifacts."""
    pairs = list(zip(candidates, built, strict=True))
    programs = [_program(one.artifact, of.args_info) for of, one in pairs if one.artifact is not None]
    ran = iter(turn_runner(settings).run(programs))
    outcomes = [Outcome((), one.failure, one.message) if one.artifact is None else next(ran) for one in built]
    for one in built:
        if one.artifact is not None:
            shutil.rmtree(Path(one.artifact).parent, ignore_errors=True)
    return outcomes


@derived_object
class ExclusiveRunner(ms.runner.PyRunner):  # type: ignore[misc]
    """The ``runner`` argument of MetaSchedule's tuning functions.

    Args:
        settings: How programs are measured.
    """

    def __init__(self, settings: MeasureSettings) -> None:
        super().__init__()
        self.settings = settings

    def run(self, runner_inputs: list[ms.runner.RunnerInput]) -> list[ms.runner.RunnerFuture]:
        """Runs a batch; MetaSchedule calls this and reads failures from the results' messages."""
        outcomes = turn_runner(self.settings).spread(
            [_program(str(one.artifact_path), one.args_info) for one in runner_inputs]
        )
        return [LocalRunnerFuture(list(one.seconds) or None, one.message or None) for one in outcomes]


def _program(artifact: str, arguments: Sequence[ms.arg_info.ArgInfo]) -> BuiltProgram:
    return artifact, tuple(one.as_json() for one in arguments)
