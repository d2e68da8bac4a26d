"""Runs built programs of a task in turn, in a process of its own, while no other process measures."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Sequence
from functools import cache
from typing import Any

from tvm_gnn_cost.datasets.failure import Failure
from tvm_gnn_cost.measuring.exclusive import machine_to_itself
from tvm_gnn_cost.measuring.other_load import OtherLoad
from tvm_gnn_cost.schedulers.in_turn import run_in_turn
from tvm_gnn_cost.schedulers.installed_tvm import PopenWorker
from tvm_gnn_cost.schedulers.scheduler import MeasureSettings, Outcome

#: Cores that other processes may keep busy meanwhile: a program on all cores waits for the one that it has to share.
_QUIET = 0.2

#: Path of a built program, and kind, dtype and shape of each of its arguments, as ``ArgInfo.as_json`` gives them.
BuiltProgram = tuple[str, tuple[Any, ...]]


@cache
def turn_runner(settings: MeasureSettings) -> TurnRunner:
    """The runner for these settings; there is one, because its worker process takes seconds to start."""
    return TurnRunner(settings)


class TurnRunner:
    """Runs the programs of a batch in turn; its process outlives the batch.

    Args:
        settings: How programs are measured.
    """

    def __init__(self, settings: MeasureSettings) -> None:
        self.settings = settings
        # A new process now and then, for the libraries that it has loaded.
        self.worker = PopenWorker(maximum_uses=100, stderr=subprocess.DEVNULL)

    def run(self, programs: Sequence[BuiltProgram]) -> list[Outcome]:
        """The outcome of each program."""
        if not programs:
            return []
        with machine_to_itself():
            end = time.monotonic() + self.settings.patience_s
            while True:
                load = OtherLoad()
                outcomes = self._in_turn(programs)
                if time.monotonic() >= end or load.cores() < _QUIET:
                    return outcomes

    def _in_turn(self, programs: Sequence[BuiltProgram]) -> list[Outcome]:
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
