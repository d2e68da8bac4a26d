"""Compares states of a task with its program before any schedule, in the worker processes that build them."""

from __future__ import annotations

import math
import shutil
import tempfile
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy.typing as npt
import tvm
from tvm import te, tir
from tvm.auto_scheduler import SearchTask
from tvm.auto_scheduler.measure import MeasureInput, local_build_worker
from tvm.contrib import cc
from tvm.target import Target

from tvm_gnn_cost.datasets.records import Failure
from tvm_gnn_cost.measuring.arguments import KINDS, Argument, Kind, draw
from tvm_gnn_cost.measuring.verification import Reference, make_reference
from tvm_gnn_cost.schedulers.build_pool import BuildPool, Built

#: Iterations of a stage up to which it stays as it is in the program that others are compared with.
_FEW = 5_000_000


class Check(NamedTuple):
    """What a program of a task is compared with.

    Attributes:
        arguments: Its arguments.
        reference: Path of what the program before any schedule gives for them.
        problem: Why there is nothing to compare with; empty if there is.
    """

    arguments: tuple[Argument, ...]
    reference: str
    problem: str = ""


class ReferenceJob(NamedTuple):
    """A program to run before any schedule: a pool's worker does.

    Attributes:
        serialized: Its ``MeasureInput``, serialized.
        arguments: Its arguments.
        dtypes: The types of what it computes with.
        terms: How many values its longest sum adds up.
        path: Where the outputs go.
        kinds: How to draw the arguments.
    """

    serialized: Any
    arguments: tuple[Argument, ...]
    dtypes: tuple[str, ...]
    terms: int
    path: str
    kinds: tuple[Kind, ...]


class Verifier:
    """Knows what programs of each task are compared with; it is computed when a task is first asked for.

    Args:
        pool: The worker processes.
    """

    def __init__(self, pool: BuildPool[Any]) -> None:
        self.pool = pool
        self.checks: dict[str, Check] = {}
        self.folder = tempfile.TemporaryDirectory(prefix="tvm-gnn-cost-references-")

    def checks_of(self, tasks: Sequence[SearchTask]) -> list[Check | None]:
        """The check of each task; None for one of another kind of machine, whose programs do not run here."""
        here = {str(one.workload_key): one for one in tasks if _runs_here(one.target)}
        missing = {key: one for key, one in here.items() if key not in self.checks}
        # An integer that a program divides by must not be zero, or its process ends.
        for kinds in (KINDS, KINDS[1:]):
            jobs = [self._job(task, kinds) for task in missing.values()]
            for key, job, built in zip(list(missing), jobs, self.pool.run(run_reference, jobs), strict=True):
                self.checks[key] = Check(job.arguments, job.path, built.message)
            missing = {key: one for key, one in missing.items() if self.checks[key].problem}
        return [self.checks.get(str(one.workload_key)) if str(one.workload_key) in here else None for one in tasks]

    def _job(self, task: SearchTask, kinds: tuple[Kind, ...]) -> ReferenceJob:
        path = Path(tempfile.mkdtemp(dir=self.folder.name)) / "reference.npz"
        serialized = MeasureInput(task, reference_state(task)).serialize()
        return ReferenceJob(serialized, arguments_of(task), dtypes_of(task), _longest_sum(task), str(path), kinds)


def reference_state(task: SearchTask) -> Any:
    """The state of a task before any schedule, with large stages on all cores and sums through contiguous memory."""
    state = task.compute_dag.get_init_state()
    for op in task.compute_dag.ops:
        if not isinstance(op, te.ComputeOp) or _iterations([*op.axis, *op.reduce_axis]) < _FEW or not op.axis:
            continue
        iters = list(state[op].iters)
        spatial, sums = iters[: len(op.axis)], iters[len(op.axis) :]
        *outer, last = spatial
        if sums and outer:
            state.reorder(op, [*outer, *sums, last])
        if len(outer) > 1:
            state.parallel(op, state.fuse(op, outer))
        elif outer:
            state.parallel(op, outer[0])
    return state


def arguments_of(task: SearchTask) -> tuple[Argument, ...]:
    """The arguments of a task's programs; integers that index a tensor are below the size of its dimension."""
    computed = [one for one in task.compute_dag.ops if isinstance(one, te.ComputeOp)]
    found = []
    for tensor in task.compute_dag.tensors:
        dtype, is_written = str(tensor.dtype), not isinstance(tensor.op, te.PlaceholderOp)
        is_index = dtype.startswith(("int", "uint")) and not is_written
        shape = tuple(int(size) for size in tensor.shape)
        found.append(Argument(dtype, shape, _bound(tensor, computed) if is_index else 0, is_written))
    return tuple(found)


def dtypes_of(task: SearchTask) -> tuple[str, ...]:
    """The types of the values that a task's programs compute with."""
    return tuple(sorted({str(op.output(i).dtype) for op in task.compute_dag.ops for i in range(op.num_outputs)}))


def faults(pool: BuildPool[Any], inputs: Sequence[MeasureInput], checks: Sequence[Check | None]) -> list[str]:
    """Why each program is wrong, in a sentence without a subject; empty if it is right or does not run here."""
    jobs = [(one.serialize(), check) for one, check in zip(inputs, checks, strict=True)]
    return [one.message for one in pool.run(verify, jobs)]


def ready(_: None) -> Built:
    """Does nothing; a pool's worker that calls this has imported what it needs."""
    return Built("")


def run_reference(job: ReferenceJob) -> Built:
    """Runs a program before any schedule and writes what it gives; a pool's worker calls this."""
    path, _, code, message, _ = local_build_worker((job.serialized, cc.create_shared, 0))
    if code:
        return Built(None, Failure.BUILD_ERROR, str(message) or "TVM cannot build it")
    run = partial(_run, tvm.runtime.load_module(path), job.arguments)
    make_reference(run, job.arguments, job.dtypes, job.terms, kinds=job.kinds).save(Path(job.path))
    shutil.rmtree(Path(path).parent)
    return Built(job.path)


def verify(job: tuple[Any, Check | None]) -> Built:
    """Builds a program and compares what it computes; a pool's worker calls this."""
    serialized, check = job
    if check is None:
        return Built("")
    path, _, code, message, _ = local_build_worker((serialized, cc.create_shared, 0))
    if code:
        return Built(None, Failure.BUILD_ERROR, f"cannot be built: {message}")
    wrong = fault(path, check)
    shutil.rmtree(Path(path).parent)
    return Built(None, Failure.WRONG_ANSWER, wrong) if wrong else Built("")


def fault(path: str, check: Check) -> str:
    """Why a built program is wrong, in a sentence without a subject; empty if it is right."""
    if check.problem:
        return f"cannot be verified: {check.problem}"
    expected = _reference(check.reference)
    drawn = _drawn(check.arguments, expected.kind)
    return expected.check(_run(tvm.runtime.load_module(path), check.arguments, drawn))


def _run(module: Any, arguments: Sequence[Argument], values: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    tensors = [tvm.nd.array(one) for one in values]
    module[module.entry_name](*tensors)
    return [tensor.numpy() for tensor, one in zip(tensors, arguments, strict=True) if one.written]


@lru_cache(maxsize=2)
def _reference(path: str) -> Reference:
    return Reference.load(Path(path))


@lru_cache(maxsize=1)
def _drawn(arguments: tuple[Argument, ...], kind: Kind) -> list[npt.NDArray[Any]]:
    return draw(arguments, kind)


def _longest_sum(task: SearchTask) -> int:
    return max(
        (_iterations(one.reduce_axis) for one in task.compute_dag.ops if isinstance(one, te.ComputeOp)), default=1
    )


def _iterations(axes: Sequence[Any]) -> int:
    return math.prod(int(axis.dom.extent) for axis in axes)


def _runs_here(target: Target) -> bool:
    """Whether this machine runs a target's programs: TVM adds this machine's triple where no processor is named."""
    if "mtriple" not in target.attrs:
        return True
    here = tvm.get_global_func("target.llvm_get_system_triple")()
    return "mcpu" not in target.attrs and str(target.attrs["mtriple"]) == str(here)


def _bound(tensor: Any, computed: Sequence[Any]) -> int:
    """The size of the smallest dimension that a tensor's values index; 0 if they index none."""
    known = [tensor.op]
    for op in computed:  # in the order in which they depend on each other
        is_integer = str(op.output(0).dtype).startswith(("int", "uint"))
        if is_integer and any(load.producer.op.same_as(one) for load in _loads(list(op.body)) for one in known):
            known.append(op)
    sizes = [
        int(size)
        for op in computed
        for load in _loads(list(op.body))
        for index, size in zip(load.indices, load.producer.shape, strict=True)
        if any(inner.producer.op.same_as(one) for inner in _loads([index]) for one in known)
    ]
    return min(sizes, default=0)


def _loads(expressions: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for one in expressions:
        tir.stmt_functor.post_order_visit(
            one, lambda node: found.append(node) if isinstance(node, tir.ProducerLoad) else None
        )
    return found
