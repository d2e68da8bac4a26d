"""Compares scheduled programs of a task with its unscheduled program, in the worker processes that build them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tvm
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from tvm_gnn_cost.datasets.records import Failure
from tvm_gnn_cost.lowering.code_generation import build
from tvm_gnn_cost.measuring.arguments import Argument, Kind
from tvm_gnn_cost.measuring.verification import make_reference
from tvm_gnn_cost.schedulers.build_pool import Built
from tvm_gnn_cost.schedulers.meta_schedule.target import local_target
from tvm_gnn_cost.schedulers.scheduler import Task
from tvm_gnn_cost.schedulers.verification import Verifier, drawn, reference_at

# The builder, which imports this module, also works with TVM 0.26; verification needs 0.27.
if TYPE_CHECKING:
    from tvm_gnn_cost.lowering.parameters import Parameters

#: Number of iterations up to which a program is compiled without, and with few optimizations, which is faster.
_LITTLE, _MUCH = 5 * 10**7, 10**9

#: Prefix of the names of functions that pack weights.
_PACK = "pack_weight_"


class Check(NamedTuple):
    """What a program of a task is compared with.

    Attributes:
        arguments: The arguments of the task's unscheduled program.
        reference: Path of its outputs for them.
        target: The target for the comparison: this machine's.
        work: Number of iterations.
        problem: Why there is no reference; empty otherwise.
    """

    arguments: tuple[Argument, ...]
    reference: str
    target: tvm.target.Target
    work: int
    problem: str = ""


class ReferenceJob(NamedTuple):
    """An unscheduled program, to be run by a pool's worker.

    Attributes:
        mod: Its module.
        about: Its parameters.
        target: This machine's target.
        path: Where the outputs go.
        kinds: How to draw the arguments.
    """

    mod: tvm.IRModule
    about: Parameters
    target: tvm.target.Target
    path: str
    kinds: tuple[Kind, ...]


class TaskVerifier(Verifier[Task, Check]):
    """Checks programs of tasks on this machine."""

    def key(self, task: Task) -> str:
        """The task's key."""
        return task.key

    def run_references(self, tasks: Sequence[Task], paths: Sequence[str], kinds: tuple[Kind, ...]) -> list[Check]:
        """Runs the unscheduled programs in the worker processes."""
        from tvm_gnn_cost.schedulers.meta_schedule.sampling import workload_of

        target = local_target()
        jobs = [
            ReferenceJob(workload_of(task), parameters_of(task), target, path, kinds)
            for task, path in zip(tasks, paths, strict=True)
        ]
        return [
            Check(job.about.arguments, job.path, target, job.about.work, built.message)
            for job, built in zip(jobs, self.pool.run(run_reference, jobs), strict=True)
        ]


def parameters_of(task: Task) -> Parameters:
    """The parameters of a task's programs."""
    from tvm_gnn_cost.lowering.parameters import parameters
    from tvm_gnn_cost.schedulers.meta_schedule.sampling import workload_of

    return parameters(main_of(workload_of(task)))


def main_of(mod: tvm.IRModule) -> tvm.tirx.PrimFunc:
    """The function of a task's module."""
    ((_, function),) = mod.functions_items()
    return function


def run_reference(job: ReferenceJob) -> Built:
    """Runs a task's unscheduled program and saves its outputs; a pool's worker calls this."""
    from tvm_gnn_cost.lowering.reference import reference

    # Not as a library, because linking takes longer than building.
    run = tvm.driver.build(reference(job.mod), target=_quickly_built(job.target, job.about.work))["main"]

    def outputs(values: list[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        return _call(run, [tvm.runtime.tensor(value) for value in values], job.about.arguments)

    made = make_reference(outputs, job.about.arguments, job.about.dtypes, job.about.terms, job.about.rounds, job.kinds)
    made.save(Path(job.path))
    return Built(job.path)


def with_packers(mod: tvm.IRModule) -> tvm.IRModule:
    """A scheduled module that takes packed weights, with the functions that pack them."""
    from tvm_gnn_cost.lowering.packing import packers

    names = {f"{_PACK}{i}": packer for i, packer in packers(main_of(mod)).items()}
    bare = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(mod)
    beside = {name: packer.with_attr("global_symbol", name) for name, packer in names.items()}
    return tvm.IRModule({"main": main_of(bare), **beside}, attrs=bare.attrs)


def fault(built: tvm.runtime.Module, mod: tvm.IRModule, check: Check) -> str:
    """What is wrong with a program, as a predicate; empty if it is correct.

    Args:
        built: The built result of :func:`with_packers` for ``mod``.
        mod: The scheduled module.
        check: What it is compared with.
    """
    from tvm_gnn_cost.lowering.packing import packers

    expected = reference_at(check.reference)
    arguments = [tvm.runtime.tensor(value) for value in drawn(check.arguments, expected.kind)]
    for i, packer in packers(main_of(mod)).items():
        packed = packer.params[1]
        # Padding of the packed weights must not look like weights.
        space = np.full([int(size) for size in packed.shape], 7, arguments[i].numpy().dtype)
        weights, arguments[i] = arguments[i], tvm.runtime.tensor(space)
        built[f"{_PACK}{i}"](weights, arguments[i])
    return expected.check(_call(built["main"], arguments, check.arguments))


def verify(job: tuple[tvm.IRModule, Check]) -> Built:
    """Builds a scheduled module and compares its outputs; a pool's worker calls this."""
    mod, check = job
    wrong = check.problem and f"cannot be verified: {check.problem}"
    if not wrong:
        target = _quickly_built(check.target, check.work)
        wrong = fault(build(with_packers(mod), target), mod, check)
    return Built(None, Failure.WRONG_ANSWER, wrong) if wrong else Built("")


def _quickly_built(target: tvm.target.Target, work: int) -> tvm.target.Target:
    """A target with faster builds."""
    if work > _MUCH:
        return target
    return tvm.target.Target({**json.loads(str(target)), "opt-level": 1 if work > _LITTLE else 0})


def _call(run: Any, tensors: list[Any], arguments: Sequence[Argument]) -> list[npt.NDArray[Any]]:
    run(*tensors)
    return [tensor.numpy() for tensor, argument in zip(tensors, arguments, strict=True) if argument.written]
