"""Builds states in worker processes that are reused for many batches."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tvm.auto_scheduler.measure import BuildResult, MeasureInput, local_build_worker
from tvm.contrib import cc, tar

from tvm_gnn_cost.datasets.records import Failure
from tvm_gnn_cost.datasets.tenset import CODES, FAILURES
from tvm_gnn_cost.schedulers.auto_scheduler.verification import Check, TaskVerifier, fault
from tvm_gnn_cost.schedulers.build_pool import BuildPool, Built


class Program(NamedTuple):
    """A program to build.

    Attributes:
        serialized: Its ``MeasureInput``, serialized.
        is_elsewhere: Whether it is for another kind of machine.
        check: What it is compared with; None for no comparison.
    """

    serialized: Any
    is_elsewhere: bool
    check: Check | None = None


def build_states(
    pool: BuildPool[Program], inputs: Sequence[MeasureInput], verifier: TaskVerifier | None = None
) -> list[BuildResult]:
    """Builds states as TVM's ``LocalBuilder`` does; the results have no arguments.

    Args:
        pool: Builds them.
        inputs: ``MeasureInput`` of each state.
        verifier: Verifies them; None for no verification.
    """
    checks = (
        [None] * len(inputs) if verifier is None else verifier.local_checks_of([program.task for program in inputs])
    )
    built = pool.build(
        [
            Program(program.serialize(), "mtriple" in program.task.target.attrs, check)
            for program, check in zip(inputs, checks, strict=True)
        ]
    )
    codes = [0 if program.failure is None else CODES[program.failure] for program in built]
    return [
        BuildResult(program.artifact, [], code, program.message, program.seconds)
        for program, code in zip(built, codes, strict=True)
    ]


def build_and_export(program: Program) -> Built:
    """Builds a state, writes its library and compares its outputs; a pool's worker calls this."""
    serialized, is_elsewhere, check = program
    # Linked now, on all cores, and not when it is run, unless it is for another kind of machine.
    export = tar.tar if is_elsewhere else cc.create_shared
    path, _, code, message, seconds = local_build_worker((serialized, export, 0))
    if code:
        return Built(None, FAILURES[code], str(message), seconds)
    wrong = "" if check is None else fault(path, check)
    if wrong:
        shutil.rmtree(Path(path).parent)
        return Built(None, Failure.WRONG_ANSWER, wrong, seconds)
    return Built(path, seconds=seconds)
