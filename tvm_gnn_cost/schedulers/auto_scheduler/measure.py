"""Builds states on all cores and runs them on this machine, one at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tvm import auto_scheduler
from tvm.auto_scheduler.measure import MeasureInput

from tvm_gnn_cost.datasets.tenset import FAILURES
from tvm_gnn_cost.measuring.exclusive import machine_to_itself
from tvm_gnn_cost.schedulers.scheduler import MeasureSettings, Outcome, Task


def local_runner(settings: MeasureSettings) -> auto_scheduler.LocalRunner:
    """TVM's runner with these settings; its timeout counts whole seconds."""
    return auto_scheduler.LocalRunner(
        timeout=int(settings.timeout_s),
        number=1,
        repeat=settings.repeats,
        min_repeat_ms=settings.min_repeat_ms,
        enable_cpu_cache_flush=False,
    )


def measure_states(
    groups: Sequence[tuple[Task, Sequence[Any]]], settings: MeasureSettings
) -> Iterator[tuple[Task, list[Outcome]]]:
    """Builds the states of all tasks, then runs them and yields the outcomes task by task.

    This TVM reports a program that exceeds the timeout as a run error.
    """
    inputs = [[MeasureInput(task.workload, state) for state in states] for task, states in groups]
    built = iter(auto_scheduler.LocalBuilder().build([one for some in inputs for one in some], 0))
    for (task, _), some in zip(groups, inputs, strict=True):
        artifacts = [next(built) for _ in some]
        with machine_to_itself():
            results = local_runner(settings).run(some, artifacts, 0)
        yield task, [outcome_of(result) for result in results]


def outcome_of(result: Any) -> Outcome:
    """The outcome that a ``MeasureResult`` stands for."""
    code = int(result.error_no)
    if code:
        return Outcome((), FAILURES[code], str(result.error_msg), result)
    return Outcome(tuple(float(cost) for cost in result.costs), result=result)
