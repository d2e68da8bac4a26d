"""Searches the tasks of a network: a few programs of each, then more of those with the most to gain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm_gnn_cost.progress import Stage
from tvm_gnn_cost.schedulers.scheduler import Scheduler, SearchSettings, Task
from tvm_gnn_cost.tuning.listener import ResultListener, trials_measured
from tvm_gnn_cost.tuning.result import TuneResult
from tvm_gnn_cost.tuning.screening import Screening

#: How many times slower than its rival a task may be after the first programs of both, to be searched on.
_STILL_OPEN = 1.2


def search(
    scheduler: Scheduler, tasks: Sequence[Task], model: Any, screening: Screening, listener: ResultListener
) -> None:
    """Measures programs of tasks until the budget of the listener's result is spent.

    Args:
        scheduler: The scheduler of the tasks and of the model.
        tasks: The tasks of the result, in its order.
        model: The cost model.
        screening: Picks the first programs of a task.
        listener: Follows the search.

    Raises:
        InputError: the records in the work directory are damaged.
        WorkError: the search was interrupted; every batch measured before is recorded.
    """
    result, progress = listener.result, listener.progress
    settings = result.settings
    if not tasks:
        return
    if result.trials:
        progress(trials_measured(result, ""))
        progress(Stage(f"learning from the {result.trials} programs measured before"))
        scheduler.learn_records(model, tasks, listener.work_dir)
    progress(Stage("searching"))
    # With few trials every task gets one or two, and the search has the rest.
    share = settings.batch if settings.trials is None else settings.trials // len(tasks)
    screening.measure(tasks, max(1, min(share, settings.batch // 2)), listener)
    if listener.finished():
        return
    fastest = max((found.flops / found.latency for found in result.tasks if found.best is not None), default=0.0)
    later = SearchSettings(
        result.trials,
        settings.batch,
        settings.population,
        settings.seed,
        tuple(
            found.latency if is_open else 0.0 for found, is_open in zip(result.tasks, open_tasks(result), strict=True)
        ),
        # Noise, and that a task may be faster than all others so far.
        tuple(found.flops / (1.05 * fastest) if fastest else 0.0 for found in result.tasks),
        screening.tracker,
    )
    listener.next_part()
    scheduler.search(tasks, model, listener.work_dir, later, listener)


def open_tasks(result: TuneResult) -> list[bool]:
    """Whether to search each task on: it has been measured, has other programs, and may be part of the network."""
    used, rivals = result.used, result.rivals
    return [
        found.trials > 0
        and not found.exhausted
        and (used[i] or found.latency < _STILL_OPEN * result.tasks[rivals[i]].latency)
        for i, found in enumerate(result.tasks)
    ]
