"""Compares states of a task with its unscheduled program, in the worker processes that build them."""

from __future__ import annotations

import math
import shutil
from collections.abc import Sequence
from functools import partial
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
from tvm_gnn_cost.measuring.arguments import Argument, Kind
from tvm_gnn_cost.measuring.verification import make_reference
from tvm_gnn_cost.schedulers.build_pool import BuildPool, Built
from tvm_gnn_cost.schedulers.verification import Verifier, drawn, reference_at

#: Number of iterations from which a stage of the unscheduled program is scheduled, to save time.
_FEW = 5_000_000


class Check(NamedTuple):
    """What a program of a task is compared with.

    Attributes:
        arguments: Its arguments.
        reference: Path of the unscheduled program's outputs for them.
        problem: Why there is no reference; empty otherwise.
    """

    arguments: tuple[Argument, ...]
    reference: str
    problem: str = ""


class ReferenceJob(NamedTuple):
    """An unscheduled program, to be run by a pool's worker.

    Attributes:
        serialized: Its ``MeasureInput``, serialized.
        arguments: Its arguments.
        dtypes: The dtypes that it computes with.
        terms: Number of terms of its longest sum.
        path: Where the outputs go.
        kinds: How to draw the arguments.
    """

    serialized: Any
    arguments: tuple[Argument, ...]
    dtypes: tuple[str, ...]
    terms: int
    path: str
    kinds: tuple[Kind, ...]


class TaskVerifier(Verifier[SearchTask, Check]):
    """Checks states of tasks on this machine."""

    def key(self, task: SearchTask) -> str:
        """The task's workload key."""
        return str(task.workload_key)

    def run_references(self, tasks: Sequence[SearchTask], paths: Sequence[str], kinds: tuple[Kind, ...]) -> list[Check]:
        """Runs the unscheduled programs in the worker processes."""
        jobs = [
            ReferenceJob(
                MeasureInput(task, reference_state(task)).serialize(),
                *(arguments_of(task), dtypes_of(task), _longest_sum(task), path, kinds),
            )
            for task, path in zip(tasks, paths, strict=True)
        ]
        return [
            Check(job.arguments, job.path, built.message)
            for job, built in zip(jobs, self.pool.run(run_reference, jobs), strict=True)
        ]

    def local_checks_of(self, tasks: Sequence[SearchTask]) -> list[Check | None]:
        """The check of each task; None for a target that this machine cannot run."""
        is_local = [_runs_here(task.target) for task in tasks]
        checks = iter(self.checks_of([task for task, local in zip(tasks, is_local, strict=True) if local]))
        return [next(checks) if local else None for local in is_local]


def reference_state(task: SearchTask) -> Any:
    """The initial state of a task, with large stages parallelized and sums over contiguous memory."""
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
    """The arguments of a task's programs; integers that index a tensor are bounded by the size of its dimension."""
    computed = [op for op in task.compute_dag.ops if isinstance(op, te.ComputeOp)]
    arguments = []
    for tensor in task.compute_dag.tensors:
        dtype, is_written = str(tensor.dtype), not isinstance(tensor.op, te.PlaceholderOp)
        is_index = dtype.startswith(("int", "uint")) and not is_written
        shape = tuple(int(size) for size in tensor.shape)
        arguments.append(Argument(dtype, shape, _bound(tensor, computed) if is_index else 0, is_written))
    return tuple(arguments)


def dtypes_of(task: SearchTask) -> tuple[str, ...]:
    """The dtypes that a task's programs compute with."""
    return tuple(sorted({str(op.output(i).dtype) for op in task.compute_dag.ops for i in range(op.num_outputs)}))


def faults(pool: BuildPool[Any], inputs: Sequence[MeasureInput], checks: Sequence[Check | None]) -> list[str]:
    """What is wrong with each program, as a predicate; empty if it is correct or for another machine."""
    jobs = [(measured.serialize(), check) for measured, check in zip(inputs, checks, strict=True)]
    return [measured.message for measured in pool.run(verify, jobs)]


def run_reference(job: ReferenceJob) -> Built:
    """Runs an unscheduled program and saves its outputs; a pool's worker calls this."""
    path, _, code, message, _ = local_build_worker((job.serialized, cc.create_shared, 0))
    if code:
        return Built(None, Failure.BUILD_ERROR, str(message) or "TVM cannot build it")
    run = partial(_run, tvm.runtime.load_module(path), job.arguments)
    make_reference(run, job.arguments, job.dtypes, job.terms, kinds=job.kinds).save(Path(job.path))
    shutil.rmtree(Path(path).parent)
    return Built(job.path)


def verify(job: tuple[Any, Check | None]) -> Built:
    """Builds a program and compares its outputs; a pool's worker calls this."""
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
    """What is wrong with a built program, as a predicate; empty if it is correct."""
    if check.problem:
        return f"cannot be verified: {check.problem}"
    expected = reference_at(check.reference)
    values = drawn(check.arguments, expected.kind)
    return expected.check(_run(tvm.runtime.load_module(path), check.arguments, values))


def _run(module: Any, arguments: Sequence[Argument], values: Sequence[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
    tensors = [tvm.nd.array(value) for value in values]
    module[module.entry_name](*tensors)
    return [tensor.numpy() for tensor, argument in zip(tensors, arguments, strict=True) if argument.written]


def _longest_sum(task: SearchTask) -> int:
    return max((_iterations(op.reduce_axis) for op in task.compute_dag.ops if isinstance(op, te.ComputeOp)), default=1)


def _iterations(axes: Sequence[Any]) -> int:
    return math.prod(int(axis.dom.extent) for axis in axes)


def _runs_here(target: Target) -> bool:
    """Whether this machine runs a target's programs: TVM adds this machine's triple to targets without processor."""
    if "mtriple" not in target.attrs:
        return True
    here = tvm.get_global_func("target.llvm_get_system_triple")()
    return "mcpu" not in target.attrs and str(target.attrs["mtriple"]) == str(here)


def _bound(tensor: Any, computed: Sequence[Any]) -> int:
    """The size of the smallest dimension that a tensor's values index; 0 if they are not indices."""
    known = [tensor.op]
    for op in computed:  # in topological order
        is_integer = str(op.output(0).dtype).startswith(("int", "uint"))
        if is_integer and any(load.producer.op.same_as(source) for load in _loads(list(op.body)) for source in known):
            known.append(op)
    sizes = [
        int(size)
        for op in computed
        for load in _loads(list(op.body))
        for index, size in zip(load.indices, load.producer.shape, strict=True)
        if any(inner.producer.op.same_as(source) for inner in _loads([index]) for source in known)
    ]
    return min(sizes, default=0)


def _loads(expressions: Sequence[Any]) -> list[Any]:
    loads: list[Any] = []
    for expression in expressions:
        tir.stmt_functor.post_order_visit(
            expression, lambda node: loads.append(node) if isinstance(node, tir.ProducerLoad) else None
        )
    return loads
