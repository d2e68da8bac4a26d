"""Runs built programs on this machine, those of a batch in turn, while no other process measures."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.runner.local_runner import LocalRunnerFuture
from tvm.support.popen_pool import PopenWorker

from tvm_gnn_cost.datasets.failure import Failure
from tvm_gnn_cost.measuring.exclusive import machine_to_itself
from tvm_gnn_cost.schedulers.meta_schedule.builder import Built
from tvm_gnn_cost.schedulers.meta_schedule.in_turn import run_in_turn
from tvm_gnn_cost.schedulers.scheduler import MeasureSettings, Outcome


@cache
def exclusive_runner(settings: MeasureSettings) -> ExclusiveRunner:
    """The runner for these settings; there is one, because its worker process takes seconds to start."""
    return ExclusiveRunner(settings)


@derived_object
class ExclusiveRunner(ms.runner.PyRunner):  # type: ignore[misc]
    """Runs the programs of a batch in turn, in a process of its own that outlives the batch.

    Args:
        settings: How programs are measured.
    """

    def __init__(self, settings: MeasureSettings) -> None:
        super().__init__()
        self.settings = settings
        # A new process now and then, for the libraries that it has loaded.
        self.worker = PopenWorker(maximum_uses=100, stderr=subprocess.DEVNULL)

    def run(self, runner_inputs: list[ms.runner.RunnerInput]) -> list[ms.runner.RunnerFuture]:
        """Runs a batch; MetaSchedule calls this and reads failures from the results' messages."""
        outcomes = self._run([(str(one.artifact_path), one.args_info) for one in runner_inputs])
        return [LocalRunnerFuture(list(one.seconds) or None, one.message or None) for one in outcomes]

    def run_built(self, candidates: Sequence[ms.MeasureCandidate], built: Sequence[Built]) -> list[Outcome]:
        """Runs built candidates of a task and removes the artifacts."""
        pairs = list(zip(candidates, built, strict=True))
        ran = iter(self._run([(one.artifact, of.args_info) for of, one in pairs if one.artifact is not None]))
        outcomes = [Outcome((), one.failure, one.message) if one.artifact is None else next(ran) for one in built]
        for one in built:
            if one.artifact is not None:
                shutil.rmtree(Path(one.artifact).parent, ignore_errors=True)
        return outcomes

    def _run(self, programs: Sequence[tuple[str, Any]]) -> list[Outcome]:
        plain = [(artifact, tuple(info.as_json() for info in infos)) for artifact, infos in programs]
        with machine_to_itself():
            return self._in_turn(plain) if plain else []

    def _in_turn(self, programs: Sequence[tuple[str, Any]]) -> list[Outcome]:
        """Runs programs in turn, or each alone if one of them crashes the process or hangs."""
        settings = self.settings
        limit = settings.timeout_s * len(programs)
        self.worker.send(run_in_turn, (programs, settings.repeats, settings.turns), timeout=limit)
        try:
            return [_outcome(one) for one in self.worker.recv()]
        except (TimeoutError, ChildProcessError) as error:
            if len(programs) > 1:
                return [outcome for one in programs for outcome in self._in_turn([one])]
            if isinstance(error, TimeoutError):
                return [Outcome((), Failure.RUN_TIMEOUT, f"not done within {settings.timeout_s} seconds")]
            return [Outcome((), Failure.RUN_ERROR, "the program crashed")]


def _outcome(found: list[float] | str) -> Outcome:
    return Outcome((), Failure.RUN_ERROR, found) if isinstance(found, str) else Outcome(tuple(found))
