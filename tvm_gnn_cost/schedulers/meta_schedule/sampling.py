"""Samples a task's design space: at random, or near the fastest measured programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import tvm
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.lowering.design_space import design_space
from tvm_gnn_cost.measuring.machine import usable_cores
from tvm_gnn_cost.schedulers.meta_schedule.search_log import without_stderr
from tvm_gnn_cost.schedulers.scheduler import Space, Task

#: Maximum number of candidates that a core samples before it looks for new candidates among them.
_AT_ONCE = 16

#: Candidates of a trained guide's evolutionary search. A task's samples are a random part of its best ones: the very
#: best are nearly alike.
_GUIDED_POPULATION, _GUIDED_BEST = 128, 24


def workload_of(task: Task) -> tvm.IRModule:
    """The unscheduled module of a task."""
    return task.workload.dispatched[0]


def tune_context(
    task: Task,
    target: tvm.target.Target,
    strategy: Any,
    seed: int,
    threads: int | str = "physical",
    space: Space = "package",
) -> ms.TuneContext:
    """A ``TuneContext`` of a task's design space.

    Args:
        task: The task.
        target: The target of this machine.
        strategy: The search strategy or its name.
        seed: Seed of the samples, combined with the task.
        threads: Number of threads. With several, the samples are not reproducible.
        space: Whose design space.
    """
    return ms.TuneContext(
        workload_of(task),
        target=target,
        space_generator=design_space(target) if space == "package" else "post-order-apply",
        search_strategy=strategy,
        task_name=task.name,
        rand_state=1 + (int(task.key, 16) + seed) % (2**30),
        num_threads=threads,
    )


def untuned(task: Task) -> ms.MeasureCandidate:
    """The candidate of the task's unscheduled program."""
    mod = workload_of(task)
    return ms.MeasureCandidate(tvm.s_tir.Schedule(mod), ms.arg_info.ArgInfo.from_entry_func(mod, False))


def sample_random(
    task: Task, target: tvm.target.Target, count: int, seed: int, space: Space = "package"
) -> list[ms.MeasureCandidate]:
    """Up to ``count`` distinct random candidates of the task's design space; fewer if the space is small.

    Every core samples in a separate context with a separate seed: with the threads of one context, the samples would
    not be reproducible.
    """
    cores = usable_cores()
    share = -(-count // cores)
    # TVM warns about each block with a schedule rule for GPUs.
    with without_stderr(), ThreadPoolExecutor(cores) as pool:
        parts = pool.map(
            lambda core: _sample_on_one_core(task, target, share, seed + core * 2**20, space), range(cores)
        )
        distinct = {key: candidate for part in parts for key, candidate in part.items()}
    return list(distinct.values())[:count]


def _sample_on_one_core(task: Task, target: tvm.target.Target, count: int, seed: int, space: Space) -> dict[str, Any]:
    context = tune_context(task, target, "replay-trace", seed, threads=1, space=space)
    # TVM's own rules can fail, with an error of any type; then the task keeps its default schedule.
    try:
        spaces = context.generate_design_space()
    except Exception:
        return {}
    if not any(_is_sampled(schedule) for schedule in spaces):
        return _programs(context, spaces)
    share = -(-count // -(-count // _AT_ONCE))
    context.pre_tuning(4 * count, share, spaces)
    distinct: dict[str, Any] = {}
    for _ in range(4 * count // share):
        known = len(distinct)
        for candidate in context.generate_measure_candidates() or []:
            distinct.setdefault(ms.utils.shash2hex(candidate.sch.mod), candidate)
        # Without new candidates, the space is exhausted.
        if len(distinct) >= count - count // 8 or len(distinct) == known:
            break
    context.post_tuning()
    return distinct


def _is_sampled(schedule: tvm.s_tir.Schedule) -> bool:
    """Whether a design space has several programs."""
    return any(str(step.kind.name).startswith("Sample") for step in schedule.trace.insts)


def _programs(context: ms.TuneContext, spaces: Sequence[tvm.s_tir.Schedule]) -> dict[str, Any]:
    """Hash of the program -> candidate, for design spaces with a single program."""
    valid = [space for space in spaces if all(post.apply(space) for post in context.space_generator.postprocs)]
    arguments = [ms.arg_info.ArgInfo.from_entry_func(space.mod, remove_preproc=True) for space in valid]
    candidates = [ms.MeasureCandidate(*pair) for pair in zip(valid, arguments, strict=True)]
    return {ms.utils.shash2hex(candidate.sch.mod): candidate for candidate in candidates}


class Guide:
    """Mutates the fastest measured programs of a task and keeps the mutations that XGBoost ranks best.

    Args:
        records: Task key -> measured programs.
        target: The target of the programs.
        tasks: The tasks to sample, with the number of programs. A single XGBoost model learns from all of them,
            because training takes seconds even with few programs.
        space: Whose design space.
    """

    def __init__(
        self,
        records: Mapping[str, Sequence[ms.database.TuningRecord]],
        target: tvm.target.Target,
        tasks: Sequence[tuple[Task, int]],
        space: Space = "package",
    ) -> None:
        self.records, self.target, self.space = records, target, space
        self.model = ms.cost_model.XGBModel(num_warmup_samples=1, early_stopping_rounds=20)
        self.database = ms.database.MemoryDatabase()
        known = [task for task, _ in tasks if records[task.key]]
        for task in known:
            # update() only trains if the data has grown by a fifth of this: here, after the last task.
            self.model.last_train_size = 0 if task is known[-1] else 2**40
            self._learn(task)

    def _learn(self, task: Task) -> None:
        records = self.records[task.key]
        context = tune_context(task, self.target, "replay-trace", 0)
        candidates = [record.as_measure_candidate() for record in records]
        results = [ms.runner.RunnerResult(record.run_secs, None) for record in records]
        self.model.update(context, candidates, results)
        workload = self.database.commit_workload(workload_of(task))
        for record in records:
            self.database.commit_tuning_record(
                ms.database.TuningRecord(record.trace, workload, record.run_secs, record.target, record.args_info)
            )

    def sample(self, task: Task, count: int) -> list[ms.MeasureCandidate]:
        """Up to ``count`` new candidates near the fastest measured programs of the task."""
        strategy = ms.search_strategy.EvolutionarySearch(
            population_size=4 * count, init_measured_ratio=0.4, init_min_unmeasured=1, genetic_num_iters=2
        )
        seed = len(self.records[task.key])
        return _evolved(task, self.target, self.space, strategy, seed, count, self.model, self.database)


class TrainedGuide:
    """Picks among the candidates that a trained model ranks best after an evolutionary search.

    Args:
        records: Task key -> measured programs; their number seeds the search.
        target: The target of the programs.
        model: The model.
        space: Whose design space.
    """

    def __init__(
        self,
        records: Mapping[str, Sequence[ms.database.TuningRecord]],
        target: tvm.target.Target,
        model: ms.cost_model.CostModel,
        space: Space = "package",
    ) -> None:
        self.records, self.target, self.model, self.space = records, target, model, space

    def sample(self, task: Task, count: int) -> list[ms.MeasureCandidate]:
        """Up to ``count`` candidates of the task."""
        strategy = ms.search_strategy.EvolutionarySearch(
            population_size=_GUIDED_POPULATION, init_measured_ratio=0.0, init_min_unmeasured=64, eps_greedy=0.0
        )
        seed, best, nothing = len(self.records[task.key]), max(_GUIDED_BEST, count), ms.database.MemoryDatabase()
        found = _evolved(task, self.target, self.space, strategy, seed, best, self.model, nothing)
        order = np.random.default_rng(len(found)).permutation(len(found))
        return [found[i] for i in order[:count].tolist()]


def _evolved(
    task: Task,
    target: tvm.target.Target,
    space: Space,
    strategy: ms.search_strategy.EvolutionarySearch,
    seed: int,
    count: int,
    model: ms.cost_model.CostModel,
    measured: ms.database.Database,
) -> list[ms.MeasureCandidate]:
    """Up to ``count`` candidates that a model ranks best in the first round of an evolutionary search."""
    context = tune_context(task, target, strategy, seed, space=space)
    context.pre_tuning(count, count, database=measured, cost_model=model)
    candidates = list(context.generate_measure_candidates() or [])
    context.post_tuning()
    return candidates
