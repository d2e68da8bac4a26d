"""Tunes a whole network with MetaSchedule and any cost model, resumably; talks to TVM."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tvm
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.measuring.builder import PooledBuilder
from tvm_gnn_cost.measuring.local import local_runner
from tvm_gnn_cost.measuring.preload import import_tensor_intrin
from tvm_gnn_cost.networks.relax import extract_tasks, load_network, local_target
from tvm_gnn_cost.tuning.end_to_end import compare_end_to_end
from tvm_gnn_cost.tuning.interrupt import interruptible
from tvm_gnn_cost.tuning.progress import Follower, Guard, Progress, follow_logs, quiet_console
from tvm_gnn_cost.tuning.records import (
    RECORDS,
    count,
    is_valid,
    mean_latency,
    open_database,
    records_by_task,
    winners,
)
from tvm_gnn_cost.tuning.result import CurvePoint, Settings, TaskResult, TuneResult, resume
from tvm_gnn_cost.tuning.scheduler import EagerGradient
from tvm_gnn_cost.tuning.search_model import checkpoint_named


def tune(
    network: str,
    trials: int,
    cost_model: str,
    work_dir: Path,
    *,
    seed: int = 0,
    batch: int = 16,
    population: int = 128,
    progress: Progress,
) -> TuneResult:
    """Tunes a network of the catalogue on this machine and compares it end to end with the untuned one.

    Call it again with the same ``work_dir`` after an interruption, or with more ``trials``, to go on: programs in
    its database count and are not measured again. A finished result is returned as it is.

    Args:
        network: A name in the catalogue.
        trials: Programs to measure in all; the last batch is measured whole, so it may be a few more.
        cost_model: ``gnn`` (the checkpoint of the package), ``xgb``, ``random``, or a checkpoint's path.
        work_dir: For the database, the result (``tuning.json``) and TVM's logs.
        seed: Of the search.
        batch: Programs measured at a time.
        population: Candidates that the evolutionary search keeps.
        progress: Is told of every step.

    Raises:
        ValueError: an argument is wrong, or ``work_dir`` belongs to other settings.
        RuntimeError: the network's default schedules can't be built or run.
        KeyboardInterrupt: Ctrl-C; everything measured so far is saved.
    """
    target = local_target()
    settings = Settings(network, trials, cost_model, seed, str(target), batch, population)
    result = resume(settings, work_dir, RECORDS, ("tvm-gnn-cost", "apache-tvm", "apache-tvm-ffi", "torch", "xgboost"))
    if result.finished:
        return result
    with interruptible() as interrupted:
        _run(result, work_dir, target, progress, interrupted)
    return result


def make_cost_model(name: str, seed: int) -> Any:
    """MetaSchedule's cost model of that name: ``gnn``, ``xgb``, ``random`` or a checkpoint's path.

    Raises:
        ValueError: there is no such model or file.
    """
    if name == "random":
        return ms.cost_model.RandomModel(seed=seed)
    if name == "xgb":
        return ms.cost_model.XGBModel(num_tuning_cores=ms.utils.cpu_count(logical=False))
    checkpoint = checkpoint_named(name)
    from tvm_gnn_cost.tuning.meta_schedule import GNNCostModel

    return GNNCostModel(checkpoint)


def _run(
    result: TuneResult,
    work_dir: Path,
    target: tvm.target.Target,
    progress: Progress,
    interrupted: Callable[[], bool],
) -> None:
    """Does whatever ``result`` still lacks."""
    start = time.perf_counter()
    settings = result.settings
    progress.status("loading the cost model and the network")
    model = make_cost_model(settings.cost_model, settings.seed)
    loaded = load_network(settings.network)
    import_tensor_intrin()
    work_dir.mkdir(parents=True, exist_ok=True)
    tasks = extract_tasks(loaded.mod, target)
    builder = PooledBuilder()
    if not result.tasks:
        progress.status(f"measuring the default schedules of {len(tasks)} tasks")
        result.tasks = _measure_untuned(tasks, target, builder)
        result.curve = [CurvePoint(0, 0.0, result.untuned_latency)]
        result.save(work_dir)
    database = open_database(work_dir)
    by_task = records_by_task(tasks, database)
    count(result, by_task)
    result.spend("preparation", time.perf_counter() - start)
    progress.measured(result, "")
    if result.trials < settings.trials and result.searched < settings.trials:
        # What was compared before is not what the search will have found.
        result.end_to_end = None
        result.save(work_dir)
        _search(result, tasks, by_task, database, model, builder, work_dir, progress, interrupted)
    result.searched = settings.trials
    result.save(work_dir)
    start = time.perf_counter()
    progress.status("compiling the network with and without the tuned schedules, and timing both")
    result.end_to_end = compare_end_to_end(loaded, target, winners(tasks, database, result))
    result.spend("verification", time.perf_counter() - start)
    result.save(work_dir)


def _measure_untuned(tasks: Sequence[Any], target: tvm.target.Target, builder: PooledBuilder) -> list[TaskResult]:
    """Builds and runs each task with TVM's default schedule."""
    mods = [task.dispatched[0] for task in tasks]
    built = builder.build([ms.builder.BuilderInput(mod, target) for mod in mods])
    for task, one in zip(tasks, built, strict=True):
        if one.error_msg is not None:
            raise RuntimeError(f"the default schedule of task {task.task_name} does not build: {one.error_msg}")
    # Default schedules can be a hundred times slower than tuned ones, hence the long timeout.
    futures = local_runner(timeout_s=60.0).run(
        [
            ms.runner.RunnerInput(one.artifact_path, "cpu", ms.arg_info.ArgInfo.from_entry_func(mod, False))
            for mod, one in zip(mods, built, strict=True)
        ]
    )
    results = []
    for task, one, future in zip(tasks, built, futures, strict=True):
        ran = future.result()
        shutil.rmtree(Path(str(one.artifact_path)).parent, ignore_errors=True)
        if ran.error_msg is not None:
            raise RuntimeError(f"the default schedule of task {task.task_name} does not run: {ran.error_msg}")
        results.append(TaskResult(str(task.task_name), int(task.weight), mean_latency(ran.run_secs)))
    return results


def _search(
    result: TuneResult,
    tasks: Sequence[Any],
    by_task: Sequence[Sequence[Any]],
    database: ms.Database,
    model: Any,
    builder: PooledBuilder,
    work_dir: Path,
    progress: Progress,
    interrupted: Callable[[], bool],
) -> None:
    settings = result.settings
    # A resumed search must not draw the same random programs again.
    seed = settings.seed + result.trials
    quiet_console()
    contexts, weights = ms.relax_integration.extracted_tasks_to_tune_contexts(
        list(tasks),
        str(work_dir),
        strategy=ms.search_strategy.EvolutionarySearch(population_size=settings.population),
        seed=seed + 1,
    )
    with follow_logs(progress, work_dir), ms.Profiler() as profiler:
        follower = Follower(result, work_dir, profiler, progress)
        try:
            if result.trials:
                progress.status(f"learning from the {result.trials} programs measured before")
                _learn(model, contexts, by_task)
            progress.status("searching")
            ms.tune.tune_tasks(
                tasks=contexts,
                task_weights=weights,
                work_dir=str(work_dir),
                max_trials_global=settings.trials - result.trials,
                num_trials_per_iter=settings.batch,
                builder=builder,
                runner=local_runner(),
                database=database,
                cost_model=model,
                measure_callbacks=[Guard(interrupted), *ms.MeasureCallback.create("default"), follower],
                task_scheduler=EagerGradient(),
            )
        finally:
            follower.account()
            result.save(work_dir)


def _learn(model: Any, contexts: Sequence[Any], by_task: Sequence[Sequence[Any]]) -> None:
    """Shows the cost model what an earlier run measured."""
    for context, records in zip(contexts, by_task, strict=True):
        if records:
            valid = [record for record in records if is_valid(record)]
            with ms.Profiler.timeit("MeasureCallback/UpdateCostModel"):
                model.update(
                    context,
                    [record.as_measure_candidate() for record in valid],
                    [ms.runner.RunnerResult(record.run_secs, None) for record in valid],
                )
