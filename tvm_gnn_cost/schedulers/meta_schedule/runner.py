"""Runs built candidates, those of a batch in turn, on machines that measure nothing else meanwhile."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
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
        built: What building each gave.
        settings: How they are measured.
        arguments: Those of the task, which say what integers are below; any if there are none.
    """
    pairs = list(zip(candidates, built, strict=True))
    programs = [_program(one.artifact, of.args_info, arguments) for of, one in pairs if one.artifact is not None]
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
        arguments: Gives those of the task that is searched now; see :func:`run_built`.
    """

    def __init__(self, settings: MeasureSettings, arguments: Callable[[], Sequence[Argument]] = tuple) -> None:
        super().__init__()
        self.settings, self.arguments = settings, arguments

    def run(self, runner_inputs: list[ms.runner.RunnerInput]) -> list[ms.runner.RunnerFuture]:
        """Runs a batch; MetaSchedule calls this and reads failures from the results' messages."""
        arguments = self.arguments()
        outcomes = turn_runner(self.settings).spread(
            [_program(str(one.artifact_path), one.args_info, arguments) for one in runner_inputs]
        )
        return [LocalRunnerFuture(list(one.seconds) or None, one.message or None) for one in outcomes]


def _program(artifact: str, infos: Sequence[ms.arg_info.ArgInfo], arguments: Sequence[Argument]) -> BuiltProgram:
    bounds = [(one.bound,) if one.bound else () for one in arguments] or [()] * len(infos)
    return artifact, tuple((*one.as_json(), *bound) for one, bound in zip(infos, bounds, strict=True))
