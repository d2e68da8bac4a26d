"""Builds states in worker processes that outlive a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm.auto_scheduler.measure import BuildResult, MeasureInput, local_build_worker
from tvm.contrib import cc, tar

from tvm_gnn_cost.datasets.tenset import CODES, FAILURES
from tvm_gnn_cost.schedulers.build_pool import BuildPool, Built

#: A serialized ``MeasureInput``, and whether another kind of machine runs the program.
Program = tuple[Any, bool]


def build_states(pool: BuildPool[Program], inputs: Sequence[MeasureInput]) -> list[BuildResult]:
    """Builds states as TVM's ``LocalBuilder`` does; the results have no arguments."""
    built = pool.build([(one.serialize(), "mtriple" in one.task.target.attrs) for one in inputs])
    codes = [0 if one.failure is None else CODES[one.failure] for one in built]
    return [
        BuildResult(one.artifact, [], code, one.message, one.seconds) for one, code in zip(built, codes, strict=True)
    ]


def build_and_export(program: Program) -> Built:
    """Builds a state and writes its library; a pool's worker calls this."""
    serialized, is_elsewhere = program
    # Linked here, on all cores, and not when it is run, unless another kind of machine runs it.
    export = tar.tar if is_elsewhere else cc.create_shared
    path, _, code, message, seconds = local_build_worker((serialized, export, 0))
    return Built(None, FAILURES[code], str(message), seconds) if code else Built(path, seconds=seconds)
