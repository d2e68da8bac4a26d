"""Real schedules of real tasks, before and after postprocessors."""

from __future__ import annotations

from typing import Any

import tvm
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.schedulers.meta_schedule.preload import import_tensor_intrin


def context(mod: Any, target: Any, seed: int = 0) -> Any:
    import_tensor_intrin()
    return ms.TuneContext(
        mod=mod,
        target=target,
        space_generator="post-order-apply",
        search_strategy="replay-trace",
        rand_state=seed + 1,
        num_threads=1,
    )


def unprocessed(mod: Any, target: Any, seed: int = 0) -> list[Any]:
    """One module of each of the task's design spaces, as the schedule rules leave it."""
    return [schedule.mod for schedule in context(mod, target, seed).generate_design_space()]


def candidates(mod: Any, target: Any, count: int, seed: int = 0) -> list[Any]:
    """Measure candidates, as the postprocessors leave them."""
    tune_context = context(mod, target, seed)
    tune_context.pre_tuning(
        max_trials=count,
        num_trials_per_iter=count,
        database=ms.database.MemoryDatabase(),
        cost_model=ms.cost_model.RandomModel(),
    )
    found = tune_context.generate_measure_candidates() or []
    tune_context.post_tuning()
    return list(found)


def small_target() -> Any:
    return tvm.target.Target({"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 2})
