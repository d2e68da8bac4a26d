"""Builds scheduled modules in worker processes that are reused for many batches."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from typing import NamedTuple

import tvm
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from tvm_gnn_cost.datasets.records import Failure
from tvm_gnn_cost.lowering.code_generation import build
from tvm_gnn_cost.schedulers.build_pool import BuildPool, Built
from tvm_gnn_cost.schedulers.meta_schedule.verification import Check, fault, verify, with_packers
from tvm_gnn_cost.schedulers.scheduler import Space


class Program(NamedTuple):
    """A program to build.

    Attributes:
        mod: The scheduled module.
        target: The target of the machine that will run it.
        check: What it is compared with; None for no comparison.
        space: Whose code generator builds it.
    """

    mod: tvm.IRModule
    target: tvm.target.Target
    check: Check | None = None
    space: Space = "package"


def build_program(mod: tvm.IRModule, target: tvm.target.Target, space: Space = "package") -> tvm.runtime.Module:
    """Builds a scheduled module as TVM's ``default_build`` does, but without importing ``tensor_intrin``.

    On a busy machine this import takes half a minute in each worker, longer than a builder waits.
    """
    with target:  # the CUDA compiler reads the current target; without one, it asks this machine's GPU
        return builder_of(space)(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(mod), target)


def builder_of(space: Space) -> Callable[[tvm.IRModule, tvm.target.Target], tvm.runtime.Module]:
    """The code generator of this package, or TVM's."""
    return build if space == "package" else tvm.tirx.build


def build_and_export(program: Program) -> Built:
    """Builds a scheduled module, writes its library and compares its outputs; a pool's worker calls this."""
    mod, target, check, space = program
    if check is not None and (check.problem or str(target) != str(check.target)):
        # A program for another machine is compared when built for this machine.
        compared, check = verify((mod, check)), None
        if compared.failure is not None:
            return compared
    # Linked now, on all cores, and not when it is run, unless it is for another kind of machine.
    path = os.path.join(tempfile.mkdtemp(), "program.tar" if "mtriple" in target.attrs else "program.so")
    if check is None:
        build_program(mod, target, space).export_library(path)
        return Built(path)
    builder_of(space)(with_packers(mod), target).export_library(path)
    wrong = fault(tvm.runtime.load_module(path), mod, check)
    if wrong:
        shutil.rmtree(os.path.dirname(path))
        return Built(None, Failure.WRONG_ANSWER, wrong)
    return Built(path)


@derived_object
class PooledBuilder(ms.builder.PyBuilder):  # type: ignore[misc]
    """The ``builder`` argument of MetaSchedule's tuning functions that builds with a pool.

    Args:
        pool: The worker processes; a new pool if None.
        check: Returns what programs of the current task are compared with; by default there is no comparison.
    """

    def __init__(
        self, pool: BuildPool[Program] | None = None, check: Callable[[], Check | None] = lambda: None
    ) -> None:
        super().__init__()
        self.build_pool = pool or BuildPool(build_and_export)
        self.check = check

    def build(self, build_inputs: list[ms.builder.BuilderInput]) -> list[ms.builder.BuilderResult]:
        """Builds a batch; MetaSchedule calls this."""
        check = self.check()
        built = self.build_pool.build([Program(program.mod, program.target, check) for program in build_inputs])
        return [
            ms.builder.BuilderResult(
                program.artifact, None if program.failure is None else f"{program.failure}: {program.message}"
            )
            for program in built
        ]
