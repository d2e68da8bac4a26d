"""Runs built candidates, those of a batch interleaved, with exclusive use of the machine."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.runner.local_runner import LocalRunnerFuture

from tvm_gnn_cost.measuring.arguments import Argument
from tvm_gnn_cost.schedulers.build_pool import Built
from tvm_gnn_cost.schedulers.scheduler import MeasureSettings, Outcome
from tvm_gnn_cost.schedulers.turn_runner import BuiltProgram, turn_runner


def run_built(
    candidates: Sequence[ms.MeasureCandidate],
    built: Sequence[Built],
    settings: MeasureSettings,
    arguments: Sequence[Argument] = (),
) -> list[Outcome]:
    """Runs built candidates of a task and removes the artifacts.

    Args:
        candidates: The candidates.
        built: The build result of each.
        settings: How they are measured.
        arguments: The task's arguments, for the upper bounds of integers; no bounds if empty.
    """
    pairs = list(zip(candidates, built, strict=True))
    programs = [
        _program(program.artifact, candidate.args_info, arguments)
        for candidate, program in pairs
        if program.artifact is not None
    ]
    ran = iter(turn_runner(settings).run(programs))
    outcomes = [
        Outcome((), program.failure, program.message) if program.artifact is None else next(ran) for program in built
    ]
    for program in built:
        if program.artifact is not None:
            shutil.rmtree(Path(program.artifact).parent, ignore_errors=True)
    return outcomes


@derived_object
class ExclusiveRunner(ms.runner.PyRunner):  # type: ignore[misc]
    """The ``runner`` argument of MetaSchedule's tuning functions.

    Args:
        settings: How programs are measured.
        arguments: Returns the arguments of the current task; see :func:`run_built`.
        is_warm: Returns whether the current task has its weights in the caches.
    """

    def __init__(
        self,
        settings: MeasureSettings,
        arguments: Callable[[], Sequence[Argument]] = tuple,
        is_warm: Callable[[], bool] = bool,
    ) -> None:
        super().__init__()
        self.settings, self.arguments, self.is_warm = settings, arguments, is_warm

    def run(self, runner_inputs: list[ms.runner.RunnerInput]) -> list[ms.runner.RunnerFuture]:
        """Runs a batch; MetaSchedule calls this and reads failures from the results' messages."""
        arguments = self.arguments()
        outcomes = turn_runner(replace(self.settings, is_warm=self.is_warm())).spread(
            [_program(str(program.artifact_path), program.args_info, arguments) for program in runner_inputs]
        )
        return [LocalRunnerFuture(list(program.seconds) or None, program.message or None) for program in outcomes]


def _program(artifact: str, infos: Sequence[ms.arg_info.ArgInfo], arguments: Sequence[Argument]) -> BuiltProgram:
    bounds = [(info.bound,) if info.bound else () for info in arguments] or [()] * len(infos)
    return artifact, tuple((*info.as_json(), *bound) for info, bound in zip(infos, bounds, strict=True))
