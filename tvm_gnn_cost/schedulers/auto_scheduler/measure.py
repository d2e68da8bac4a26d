"""Builds states on all cores and runs those of a task, interleaved, while no other process measures."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tvm.auto_scheduler.measure import MeasureInput, MeasureResult

from tvm_gnn_cost.datasets.tenset import CODES, FAILURES
from tvm_gnn_cost.schedulers.auto_scheduler.builder import Program, build_states
from tvm_gnn_cost.schedulers.auto_scheduler.verification import TaskVerifier, arguments_of
from tvm_gnn_cost.schedulers.build_pool import BuildPool
from tvm_gnn_cost.schedulers.scheduler import MeasureSettings, Outcome, Task
from tvm_gnn_cost.schedulers.turn_runner import BuiltProgram, turn_runner

#: The cost of a failed program in a record.
_NO_COST = 1e10


def measure_states(
    groups: Sequence[tuple[Task, Sequence[Any]]],
    settings: MeasureSettings,
    pool: BuildPool[Program],
    verifier: TaskVerifier | None = None,
) -> Iterator[tuple[Task, list[Outcome]]]:
    """Builds the states of all tasks, then runs them and yields the outcomes task by task.

    Args:
        groups: The states of each task.
        settings: How they are measured.
        pool: Builds them.
        verifier: Verifies them; None for no verification.
    """
    inputs = [[MeasureInput(task.workload, state) for state in states] for task, states in groups]
    built = iter(build_states(pool, [measured for states in inputs for measured in states], verifier))
    batches = [(task, states, [next(built) for _ in states]) for (task, _), states in zip(groups, inputs, strict=True)]
    runner = turn_runner(settings)
    calls = [(task, partial(run_built, states, ready, runner.run)) for task, states, ready in batches]
    for task, results in runner.each(calls):
        yield task, [outcome_of(result) for result in results]


def run_built(
    inputs: Sequence[Any], built: Sequence[Any], run: Callable[[Sequence[BuiltProgram]], list[Outcome]]
) -> list[MeasureResult]:
    """Runs built states and removes their libraries.

    Args:
        inputs: ``MeasureInput`` of each state.
        built: Its ``BuildResult``.
        run: Runs them, a method of a :class:`~tvm_gnn_cost.schedulers.turn_runner.TurnRunner`.
    """
    pairs = list(zip(inputs, built, strict=True))
    ran = iter(run([_program(measured, program) for measured, program in pairs if not int(program.error_no)]))
    results = []
    for program in built:
        if code := int(program.error_no):
            results.append(
                MeasureResult([_NO_COST], code, str(program.error_msg or ""), float(program.time_cost), time.time())
            )
            continue
        outcome = next(ran)
        code = CODES[outcome.failure] if outcome.failure else 0
        costs = list(outcome.seconds) or [_NO_COST]
        results.append(MeasureResult(costs, code, outcome.message, float(program.time_cost), time.time()))
        shutil.rmtree(Path(str(program.filename)).parent, ignore_errors=True)
    return results


def _program(measured: Any, built: Any) -> BuiltProgram:
    arguments = arguments_of(measured.task)
    infos = tuple(
        ("TENSOR", argument.dtype, argument.shape, *([argument.bound] if argument.bound else []))
        for argument in arguments
    )
    return str(built.filename), infos


def outcome_of(result: Any) -> Outcome:
    """The outcome of a ``MeasureResult``."""
    code = int(result.error_no)
    if code:
        return Outcome((), FAILURES[code], str(result.error_msg), result)
    return Outcome(tuple(float(cost) for cost in result.costs), result=result)
