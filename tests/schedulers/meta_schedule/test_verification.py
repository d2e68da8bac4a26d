"""With TVM's packing of every constant in place of ours, the verifier must find each program that it makes wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tvm
from tvm import relax

from tests.schedulers.conftest import QUICK
from tests.schedulers.meta_schedule.programs import crashing, good
from tvm_gnn_cost.datasets.records import Failure
from tvm_gnn_cost.lowering import packing
from tvm_gnn_cost.schedulers.build_pool import BuildPool
from tvm_gnn_cost.schedulers.meta_schedule import SCHEDULER
from tvm_gnn_cost.schedulers.meta_schedule.builder import Program, build_and_export
from tvm_gnn_cost.schedulers.meta_schedule.networks import extract_tasks
from tvm_gnn_cost.schedulers.meta_schedule.preload import import_tensor_intrin
from tvm_gnn_cost.schedulers.meta_schedule.sampling import untuned
from tvm_gnn_cost.schedulers.meta_schedule.scheduler import MetaSchedule
from tvm_gnn_cost.schedulers.meta_schedule.verification import TaskVerifier


def floats(*shape: int) -> npt.NDArray[np.float32]:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def first(*shape: int) -> npt.NDArray[np.int64]:
    return np.zeros(shape, np.int64)


def network(build: Callable[..., relax.Expr], data: npt.NDArray[Any], weight: npt.NDArray[Any]) -> tvm.IRModule:
    """A network of one operator on data and a constant, lowered."""
    builder = relax.BlockBuilder()
    given = relax.Var("data", relax.TensorType(data.shape, str(data.dtype)))
    with builder.function("main", [given]):
        with builder.dataflow():
            found = builder.emit_output(builder.emit(build(given, relax.const(weight))))
        builder.emit_func_output(found)
    return relax.get_pipeline("zero")(builder.get())


@pytest.fixture(scope="module")
def scheduler() -> MetaSchedule:
    import_tensor_intrin()
    assert isinstance(SCHEDULER, MetaSchedule)
    return SCHEDULER


def transposed(x: relax.Expr, w: relax.Expr) -> relax.Expr:
    return relax.op.nn.conv2d_transpose(x, w, strides=2)


#: Where TVM packs a weight wrongly: the operator, its data and the weight.
WRONG: dict[str, tuple[Callable[..., relax.Expr], npt.NDArray[Any], npt.NDArray[Any]]] = {
    "take": (lambda i, table: relax.op.take(table, i, 0), first(1), floats(148, 256)),
    "gather_nd": (lambda i, table: relax.op.gather_nd(table, i), first(1, 1), floats(148, 256)),
    "one output of a ConvTranspose": (transposed, floats(1, 24, 8, 8), floats(24, 1, 2, 2)),
    "one input of a ConvTranspose": (transposed, floats(1, 1, 8, 8), floats(1, 16, 2, 2)),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_weight_that_is_packed_wrongly_is_found(name: str, scheduler: MetaSchedule, target: Any) -> None:
    mod = network(*WRONG[name])
    for free, is_wrong in ((relax.transform.AttachAttrLayoutFreeBuffers(), True), (packing.free_weights, False)):
        (task,) = extract_tasks(free(mod), target)
        candidates = scheduler.sample(task, target, 4, seed=0)
        said = scheduler.faults([(task, one) for one in candidates], target)
        assert any("computes a wrong output" in one for one in said) == is_wrong, said
        ((_, outcomes),) = scheduler.measure([(task, candidates)], target, QUICK)
        assert [one.failure == Failure.WRONG_ANSWER for one in outcomes] == [bool(one) for one in said]
        assert all(bool(one.seconds) != bool(why) for one, why in zip(outcomes, said, strict=True))


def test_weights_that_are_packed_rightly_are_right(scheduler: MetaSchedule, target: Any) -> None:
    (task,) = extract_tasks(packing.free_weights(network(relax.op.matmul, floats(4, 32), floats(32, 48))), target)
    candidates = scheduler.sample(task, target, 6, seed=0)
    assert any(len(one.args_info[1].shape) > 2 for one in candidates)
    assert scheduler.faults([(task, one) for one in candidates], target) == [""] * 6


def test_a_program_of_another_task_is_found(scheduler: MetaSchedule, target: Any) -> None:
    (task,) = extract_tasks(network(relax.op.add, floats(16), floats(16)), target)
    (said,) = scheduler.faults([(task, good())], target)
    assert said


def test_a_program_that_crashes_is_none(scheduler: MetaSchedule, target: Any) -> None:
    (task,) = extract_tasks(network(relax.op.add, floats(16), floats(16)), target)
    right, crash = scheduler.faults([(task, untuned(task)), (task, crashing())], target)
    assert (right, bool(crash)) == ("", True)


def test_integers_that_a_program_divides_by_are_not_zero(scheduler: MetaSchedule, target: Any) -> None:
    (task,) = extract_tasks(
        network(lambda x, w: relax.op.floor_divide(w, x), np.ones(64, np.int32), np.ones(64, np.int32)), target
    )
    assert scheduler.faults([(task, untuned(task))], target) == [""]


def test_indices_are_in_range_when_a_program_is_measured(scheduler: MetaSchedule, target: Any) -> None:
    # TVM's own arguments are any integers, and the program reads memory that is not its own.
    (task,) = extract_tasks(network(lambda i, t: relax.op.take(t, i, 0, mode="fast"), first(64), floats(8, 4)), target)
    (outcome,) = scheduler.measure_untuned([task], target, Path())
    assert outcome.failure is None


def test_programs_for_another_machine_are_compared_on_this_one(scheduler: MetaSchedule) -> None:
    other = tvm.target.Target({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "num-cores": 4})
    build, data, weight = WRONG["take"]
    mod = relax.transform.AttachAttrLayoutFreeBuffers()(network(build, data, weight))
    (task,) = extract_tasks(mod, other)
    said = scheduler.faults([(task, one) for one in scheduler.sample(task, other, 2, seed=0)], other)
    assert said
    assert all("computes a wrong output" in one for one in said)


def test_a_task_without_a_reference_has_no_right_program(scheduler: MetaSchedule, target: Any) -> None:
    (task,) = extract_tasks(network(relax.op.add, floats(16), floats(16)), target)
    (check,) = TaskVerifier(BuildPool(build_and_export, timeout_s=1e-3)).checks_of([task])
    assert "not built within" in check.problem
    (built,) = scheduler.build_pool.build([Program(untuned(task).sch.mod, target, check)])
    assert built.failure == Failure.WRONG_ANSWER
    assert built.message.startswith("cannot be verified: not built within")
