"""Builds programs in worker processes that outlive a batch."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass

import tvm
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock
from tvm.support.popen_pool import PopenPoolExecutor, StatusKind

from tvm_gnn_cost.datasets.failure import Failure


def build_program(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
    """Builds a scheduled module as TVM's ``default_build`` does, but without importing ``tensor_intrin``.

    On a busy machine that import takes half a minute in each worker, longer than a builder waits.
    """
    return tvm.driver.build(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(mod), target=target)


def _build_and_export(mod: tvm.IRModule, target: tvm.target.Target) -> str:
    # Linked here, on all cores, and not when it is run, unless another kind of machine runs it.
    path = os.path.join(tempfile.mkdtemp(), "program.tar" if "mtriple" in target.attrs else "program.so")
    build_program(mod, target).export_library(path)
    return path


@dataclass(frozen=True)
class Built:
    """The result of building one program.

    Attributes:
        artifact: Path of the library, alone in a temporary folder; None if the build failed.
        failure: Why there is no library; None if there is one.
        message: TVM's error message; empty if there was none.
    """

    artifact: str | None
    failure: Failure | None = None
    message: str = ""


class BuildPool:
    """Builds on all cores in worker processes that outlive a batch.

    TVM's ``LocalBuilder`` starts new workers for every batch, because they leak memory, and each imports TVM. That
    takes 3 to 10 seconds a batch on two cores, longer than building 16 programs. Here a worker is replaced after 200
    programs.

    Args:
        timeout_s: The longest time in seconds that building one program may take.
    """

    def __init__(self, timeout_s: float = 30.0) -> None:
        self.timeout_s = timeout_s
        self.pool = PopenPoolExecutor(
            max_workers=ms.utils.cpu_count(logical=True),
            timeout=timeout_s,
            maximum_process_uses=200,
            stderr=subprocess.DEVNULL,
        )

    def build(self, programs: Sequence[tuple[tvm.IRModule, tvm.target.Target]]) -> list[Built]:
        """Builds scheduled modules, each for its target; the result of a build that fails has a ``failure``."""
        results = []
        for done in self.pool.map_with_error_catching(lambda program: _build_and_export(*program), list(programs)):
            if done.status == StatusKind.COMPLETE:
                results.append(Built(done.value))
            elif done.status == StatusKind.TIMEOUT:
                message = f"not built within {self.timeout_s} seconds"
                results.append(Built(None, Failure.BUILD_TIMEOUT, message))
            else:
                results.append(Built(None, Failure.BUILD_ERROR, str(done.value)))
        return results


@derived_object
class PooledBuilder(ms.builder.PyBuilder):  # type: ignore[misc]
    """The ``builder`` argument of MetaSchedule's tuning functions that builds with a :class:`BuildPool`.

    Args:
        pool: The worker processes; new ones if None.
    """

    def __init__(self, pool: BuildPool | None = None) -> None:
        super().__init__()
        self.build_pool = pool or BuildPool()

    def build(self, build_inputs: list[ms.builder.BuilderInput]) -> list[ms.builder.BuilderResult]:
        """Builds a batch; MetaSchedule calls this."""
        built = self.build_pool.build([(one.mod, one.target) for one in build_inputs])
        return [
            ms.builder.BuilderResult(one.artifact, None if one.failure is None else f"{one.failure}: {one.message}")
            for one in built
        ]
