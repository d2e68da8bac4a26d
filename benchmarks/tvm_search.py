"""MetaSchedule's own search of a task, with its design space and settings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tvm.s_tir import meta_schedule as ms

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
