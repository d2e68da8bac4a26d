"""A MetaSchedule builder that keeps its workers between batches; talks to TVM."""

from __future__ import annotations

import os
import subprocess
import tempfile

import tvm
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.support.popen_pool import PopenPoolExecutor, StatusKind


def build_program(mod: tvm.IRModule, target: tvm.target.Target) -> tvm.runtime.Module:
    """TVM's ``default_build`` without its import of ``tensor_intrin``.

    That import takes up to half a minute in each worker of a busy machine, longer than the builder waits.
    """
    from tvm.driver import build
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    return build(RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(mod), target=target)


def _build_and_export(mod: tvm.IRModule, target: tvm.target.Target) -> str:
    from tvm.support.tar import tar

    path = os.path.join(tempfile.mkdtemp(), "program." + tar.output_format)
    build_program(mod, target).export_library(path, fcompile=tar)
    return path


@derived_object
class PooledBuilder(ms.builder.PyBuilder):  # type: ignore[misc]
    """Builds on every core in worker processes that live on.

    ``LocalBuilder`` starts its workers anew for every batch, and each imports TVM: 3 to 10 seconds a batch on two
    cores, more than building 16 programs takes. Its reason is that workers leak memory, so here each is replaced
    after 200 programs.
    """

    def __init__(self, timeout_s: float = 30.0) -> None:
        super().__init__()
        self.timeout_s = timeout_s
        self.pool = PopenPoolExecutor(
            max_workers=ms.utils.cpu_count(logical=True),
            timeout=timeout_s,
            maximum_process_uses=200,
            stderr=subprocess.DEVNULL,
        )

    def build(self, build_inputs: list[ms.builder.BuilderInput]) -> list[ms.builder.BuilderResult]:
        """Builds the programs; one that fails or takes too long carries its error message."""
        results = []
        for built in self.pool.map_with_error_catching(
            lambda one: _build_and_export(*one), [(one.mod, one.target) for one in build_inputs]
        ):
            if built.status == StatusKind.COMPLETE:
                results.append(ms.builder.BuilderResult(built.value, None))
            elif built.status == StatusKind.TIMEOUT:
                message = f"LocalBuilder: Timeout, killed after {self.timeout_s} seconds"
                results.append(ms.builder.BuilderResult(None, message))
            else:
                message = f"LocalBuilder: An exception occurred\n{built.value}"
                results.append(ms.builder.BuilderResult(None, message))
        return results
