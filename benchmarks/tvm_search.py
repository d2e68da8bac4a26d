"""MetaSchedule's own search of a task or a network, with its design space and settings."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import tvm
from tvm import relax
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.schedulers.meta_schedule.builder import PooledBuilder
from tvm_gnn_cost.schedulers.meta_schedule.runner import ExclusiveRunner
from tvm_gnn_cost.schedulers.meta_schedule.search import Follower
from tvm_gnn_cost.schedulers.meta_schedule.search_log import quiet_console
from tvm_gnn_cost.schedulers.scheduler import MeasureSettings, Task
from tvm_gnn_cost.tuning.search import ResultListener


def search_with_tvm(task: Task, model: Any, work_dir: Path, on: ResultListener) -> None:
    """Measures the number of trials of the listener's result.

    Programs are built and run as in the search of this package: in running workers, and with cold weights.

    Args:
        task: The task.
        model: A cost model of MetaSchedule.
        work_dir: The folder of the database and of MetaSchedule's logs.
        on: Follows the search.
    """
    quiet_console()
    settings = on.result.settings
    contexts, weights = ms.relax_integration.extracted_tasks_to_tune_contexts(
        [task.workload], str(work_dir), seed=settings.seed + 1
    )
    with ms.Profiler() as profiler:
        ms.tune.tune_tasks(
            tasks=contexts,
            task_weights=weights,
            work_dir=str(work_dir),
            max_trials_global=settings.trials,
            num_trials_per_iter=settings.batch_size,
            builder=PooledBuilder(),
            runner=ExclusiveRunner(MeasureSettings()),
            cost_model=model,
            measure_callbacks=[*ms.MeasureCallback.create("default"), Follower(on, profiler)],
        )


@derived_object
class _Until(ms.measure_callback.PyMeasureCallback):  # type: ignore[misc]
    """Ends the process when so many seconds are over and every task has a batch in the database.

    MetaSchedule records nothing before all tasks have one, and has no limit of time.
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.end, self.recorded = time.monotonic() + seconds, set[int]()

    def apply(
        self, scheduler: Any, task_id: int, _candidates: Sequence[Any], _built: Sequence[Any], _ran: Sequence[Any]
    ) -> None:
        """Looks at the clock; MetaSchedule calls this after each batch, and after the callback that records it."""
        self.recorded.add(int(task_id))
        if time.monotonic() > self.end and len(self.recorded) == len(scheduler.tasks_):
            for child in psutil.Process().children(recursive=True):
                child.kill()
            os._exit(0)


def search_network(mod: tvm.IRModule, work_dir: Path, seed: int, seconds: float) -> None:
    """Searches with TVM's own settings and cost model, and ends this process; the records are in ``work_dir``.

    Args:
        mod: The network as TVM imports it.
        work_dir: The folder of the database, which is made.
        seed: Of the search.
        seconds: Least time; the search goes on until every task has a batch.
    """
    callbacks = [*ms.MeasureCallback.create("default"), _Until(seconds)]
    ms.relax_integration.tune_relax(
        *(mod, {}, scheduler().target(), str(work_dir)),
        max_trials_global=10**9,
        num_trials_per_iter=16,
        builder=PooledBuilder(),
        runner=ExclusiveRunner(MeasureSettings()),
        measure_callbacks=callbacks,
        seed=seed + 1,
    )


def compile_network(mod: tvm.IRModule, work_dir: Path, library: Path) -> int:
    """Compiles a network with the fastest records in ``work_dir``; returns their number."""
    database = ms.database.JSONDatabase(work_dir=str(work_dir))
    target = scheduler().target()
    with target, database:
        mod = relax.transform.MetaScheduleApplyDatabase()(mod)
    tvm.compile(mod, target).export_library(str(library))
    return len(database)
