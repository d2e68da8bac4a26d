"""Builds states in worker processes that outlive a batch."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from tvm.auto_scheduler.measure import BuildResult, MeasureInput, local_build_worker
from tvm.contrib import cc, tar

from tvm_gnn_cost.datasets.records import Failure
from tvm_gnn_cost.datasets.tenset import CODES, FAILURES
from tvm_gnn_cost.schedulers.auto_scheduler.verification import Check, Verifier, fault
from tvm_gnn_cost.schedulers.build_pool import BuildPool, Built


class Program(NamedTuple):
    """A program to build.

    Attributes:
        serialized: Its ``MeasureInput``, serialized.
        is_elsewhere: Whether another kind of machine runs it.
        check: What it is compared with; None if it is not.
    """

    serialized: Any
    is_elsewhere: bool
    check: Check | None = None


def build_states(
    pool: BuildPool[Program], inputs: Sequence[MeasureInput], verifier: Verifier | None = None
) -> list[BuildResult]:
    """Builds states as TVM's ``LocalBuilder`` does; the results have no arguments.

    Args:
        pool: Builds them.
        inputs: ``MeasureInput`` of each state.
        verifier: Knows what each is compared with; they are not if None.
    """
    checks = [None] * len(inputs) if verifier is None else verifier.checks_of([one.task for one in inputs])
    built = pool.build(
        [
            Program(one.serialize(), "mtriple" in one.task.target.attrs, check)
            for one, check in zip(inputs, checks, strict=True)
        ]
    )
    codes = [0 if one.failure is None else CODES[one.failure] for one in built]
    return [
        BuildResult(one.artifact, [], code, one.message, one.seconds) for one, code in zip(built, codes, strict=True)
    ]


def build_and_export(program: Program) -> Built:
    """Builds a state, writes its library and compares what it computes; a pool's worker calls this."""
    serialized, is_elsewhere, check = program
    # Linked here, on all cores, and not when it is run, unless another kind of machine runs it.
    export = tar.tar if is_elsewhere else cc.create_shared
    path, _, code, message, seconds = local_build_worker((serialized, export, 0))
    if code:
        return Built(None, FAILURES[code], str(message), seconds)
    wrong = "" if check is None else fault(path, check)
    if wrong:
        shutil.rmtree(Path(path).parent)
        return Built(None, Failure.WRONG_ANSWER, wrong, seconds)
    return Built(path, seconds=seconds)
