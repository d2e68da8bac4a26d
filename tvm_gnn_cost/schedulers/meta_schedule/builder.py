"""Builds scheduled modules in worker processes that outlive a batch."""

from __future__ import annotations

import os
import tempfile

import tvm
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from tvm_gnn_cost.schedulers.build_pool import BuildPool, Built

#: A scheduled module and its target.
Program = tuple[tvm.IRModule, tvm.target.Target]


def build_program(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
    """Builds a scheduled module as TVM's ``default_build`` does, but without importing ``tensor_intrin``.

    On a busy machine that import takes half a minute in each worker, longer than a builder waits.
    """
    return tvm.driver.build(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(mod), target=target)


def build_and_export(program: Program) -> Built:
    """Builds a scheduled module and writes its library; a pool's worker calls this."""
    mod, target = program
    # Linked here, on all cores, and not when it is run, unless another kind of machine runs it.
    path = os.path.join(tempfile.mkdtemp(), "program.tar" if "mtriple" in target.attrs else "program.so")
    build_program(mod, target).export_library(path)
    return Built(path)


@derived_object
class PooledBuilder(ms.builder.PyBuilder):  # type: ignore[misc]
    """The ``builder`` argument of MetaSchedule's tuning functions that builds with a pool.

    Args:
        pool: The worker processes; new ones if None.
    """

    def __init__(self, pool: BuildPool[Program] | None = None) -> None:
        super().__init__()
        self.build_pool = pool or BuildPool(build_and_export)

    def build(self, build_inputs: list[ms.builder.BuilderInput]) -> list[ms.builder.BuilderResult]:
        """Builds a batch; MetaSchedule calls this."""
        built = self.build_pool.build([(one.mod, one.target) for one in build_inputs])
        return [
            ms.builder.BuilderResult(one.artifact, None if one.failure is None else f"{one.failure}: {one.message}")
            for one in built
        ]
