"""Compares scheduled programs of a task with its unscheduled one, in the worker processes that build them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tvm
from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

from tvm_gnn_cost.datasets.records import Failure
from tvm_gnn_cost.measuring.arguments import KINDS, Argument, Kind, draw
from tvm_gnn_cost.measuring.verification import Reference, make_reference
from tvm_gnn_cost.schedulers.build_pool import BuildPool, Built
from tvm_gnn_cost.schedulers.meta_schedule.target import local_target
from tvm_gnn_cost.schedulers.scheduler import Task

# The builder alone, which imports this module, is for TVM 0.26 too; what verifies programs needs 0.27.
if TYPE_CHECKING:
    from tvm_gnn_cost.lowering.parameters import Parameters

#: Iterations up to which a program is compiled without optimizations, and with few, because that is done sooner.
_LITTLE, _MUCH = 5 * 10**7, 10**9

#: Begins the names of the functions that pack weights.
_PACK = "pack_weight_"


class Check(NamedTuple):
    """What a program of a task is compared with.

    Attributes:
        arguments: Those of the task's unscheduled program.
        reference: Path of what that program gives for them.
        target: The target that programs are compared on: this machine's.
        work: How much they do.
        problem: Why there is nothing to compare with; empty if there is.
    """

    arguments: tuple[Argument, ...]
    reference: str
    target: tvm.target.Target
    work: int
    problem: str = ""


class ReferenceJob(NamedTuple):
    """An unscheduled program to run: a pool's worker does.

    Attributes:
        mod: Its module.
        about: Its parameters.
        target: This machine's.
        path: Where the outputs go.
        kinds: How to draw the arguments.
    """

    mod: tvm.IRModule
    about: Parameters
    target: tvm.target.Target
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

    def checks_of(self, tasks: Sequence[Task]) -> list[Check]:
        """The check of each task."""
        from tvm_gnn_cost.schedulers.meta_schedule.sampling import workload_of

        target = local_target()
        missing = list({task.key: task for task in tasks if task.key not in self.checks}.values())
        # An integer that a program divides by must not be zero, or its process ends.
        for kinds in (KINDS, KINDS[1:]):
            jobs = [
                ReferenceJob(
                    workload_of(task),
                    parameters_of(task),
                    target,
                    str(Path(self.folder.name) / f"{task.key}.npz"),
                    kinds,
                )
                for task in missing
            ]
            for task, job, built in zip(missing, jobs, self.pool.run(run_reference, jobs), strict=True):
                self.checks[task.key] = Check(job.about.arguments, job.path, target, job.about.work, built.message)
            missing = [task for task in missing if self.checks[task.key].problem]
        return [self.checks[task.key] for task in tasks]


def parameters_of(task: Task) -> Parameters:
    """The parameters of a task's programs."""
    from tvm_gnn_cost.lowering.parameters import parameters
    from tvm_gnn_cost.schedulers.meta_schedule.sampling import workload_of

    return parameters(main_of(workload_of(task)))


def main_of(mod: tvm.IRModule) -> tvm.tirx.PrimFunc:
    """The function of a task's module."""
    ((_, function),) = mod.functions_items()
    return function


def ready(_: None) -> Built:
    """Does nothing; a pool's worker that calls this has imported what it needs."""
    return Built("")


def run_reference(job: ReferenceJob) -> Built:
    """Runs a task's unscheduled program and writes what it gives; a pool's worker calls this."""
    from tvm_gnn_cost.lowering.reference import reference

    # Linking a library would take longer than to build this.
    run = tvm.driver.build(reference(job.mod), target=_quickly_built(job.target, job.about.work))["main"]

    def outputs(values: list[npt.NDArray[Any]]) -> list[npt.NDArray[Any]]:
        return _call(run, [tvm.runtime.tensor(one) for one in values], job.about.arguments)

    made = make_reference(outputs, job.about.arguments, job.about.dtypes, job.about.terms, job.about.rounds, job.kinds)
    made.save(Path(job.path))
    return Built(job.path)


def with_packers(mod: tvm.IRModule) -> tvm.IRModule:
    """A scheduled module that takes packed weights, with the functions that pack them beside it."""
    from tvm_gnn_cost.lowering.packing import packers

    names = {f"{_PACK}{i}": one for i, one in packers(main_of(mod)).items()}
    bare = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(mod)
    beside = {name: one.with_attr("global_symbol", name) for name, one in names.items()}
    return tvm.IRModule({"main": main_of(bare), **beside}, attrs=bare.attrs)


def fault(built: tvm.runtime.Module, mod: tvm.IRModule, check: Check) -> str:
    """Why a program is wrong, in a sentence without a subject; empty if it is right.

    Args:
        built: What :func:`with_packers` gave for ``mod``, built.
        mod: The scheduled module.
        check: What it is compared with.
    """
    from tvm_gnn_cost.lowering.packing import packers

    expected = _reference(check.reference)
    arguments = [tvm.runtime.tensor(one) for one in _drawn(check.arguments, expected.kind)]
    for i, packer in packers(main_of(mod)).items():
        packed = packer.params[1]
        # What the packing leaves out must not look like weights.
        space = np.full([int(size) for size in packed.shape], 7, arguments[i].numpy().dtype)
        weights, arguments[i] = arguments[i], tvm.runtime.tensor(space)
        built[f"{_PACK}{i}"](weights, arguments[i])
    return expected.check(_call(built["main"], arguments, check.arguments))


def verify(job: tuple[tvm.IRModule, Check]) -> Built:
    """Builds a scheduled module and compares what it computes; a pool's worker calls this."""
    mod, check = job
    wrong = check.problem and f"cannot be verified: {check.problem}"
    if not wrong:
        target = _quickly_built(check.target, check.work)
        wrong = fault(tvm.driver.build(with_packers(mod), target=target), mod, check)
    return Built(None, Failure.WRONG_ANSWER, wrong) if wrong else Built("")


def _quickly_built(target: tvm.target.Target, work: int) -> tvm.target.Target:
    """A target whose programs are built soon."""
    if work > _MUCH:
        return target
    return tvm.target.Target({**json.loads(str(target)), "opt-level": 1 if work > _LITTLE else 0})


def _call(run: Any, tensors: list[Any], arguments: Sequence[Argument]) -> list[npt.NDArray[Any]]:
    run(*tensors)
    return [tensor.numpy() for tensor, one in zip(tensors, arguments, strict=True) if one.written]


@lru_cache(maxsize=2)
def _reference(path: str) -> Reference:
    return Reference.load(Path(path))


@lru_cache(maxsize=1)
def _drawn(arguments: tuple[Argument, ...], kind: Kind) -> list[npt.NDArray[Any]]:
    return draw(arguments, kind)
