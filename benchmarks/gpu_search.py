"""Searches tasks on the GPU of this machine with TVM's own search, and models that know another GPU's records.

``tune_tir`` with TVM's design space; only the cost model changes: random scores, XGBModel that learns from the first
round on (by default it is random for 100 measurements), XGBModel that starts with the records of FOLDER, and the graph
model that was trained on them. FOLDER holds a ResNet-34 on an A100 (see ``cuda_programs.py``); the tasks are of other
networks. With ``--at-once``, searches run at the same time on separate cores, but programs run alone. At the end, also
when the time runs out, the fastest programs of the finished searches of each task are measured again, interleaved, and
compared with NumPy. Finished searches are saved; the same command resumes. On 16 cores with ``--at-once 3``, one seed
takes seven minutes (four with ``--valid-samples 16``), the last measurement one; the first call also trains the models.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import tvm
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

import single_tasks
from common import console, parser, run_saved, table_of, write_result
from cuda_programs import add_options
from gpu_pretraining import GNN, XGB, pretrain, xgb, xgb_with_records
from search_curves import Points, Runs, best, compare_runs, comparison_table, finite, improvements
from single_tasks import GPU_TASKS, SingleTask, chosen
from tvm_gnn_cost import GNNCostModel, GraphStore, WorkError
from tvm_gnn_cost.files import write_text
from tvm_gnn_cost.measuring.machine import machine_to_itself, usable_cores
from tvm_gnn_cost.schedulers.build_pool import BuildPool
from tvm_gnn_cost.schedulers.meta_schedule.builder import PooledBuilder, build_and_export, build_program
from tvm_gnn_cost.schedulers.meta_schedule.preload import import_tensor_intrin
from tvm_gnn_cost.schedulers.meta_schedule.search import phase_seconds
from tvm_gnn_cost.schedulers.meta_schedule.search_log import quiet_console
from tvm_gnn_cost.schedulers.meta_schedule.work_dir import latencies_of
from tvm_gnn_cost.scoring.cost_model import CostModel, UpdateSettings

MODELS = ("gnn-a100", "xgb-a100", "xgb", "random")
#: Options that decide how a search runs.
_SIZES = ("trials", "trials_per_round", "population_size", "valid_samples")
#: Task, model and seed.
Run = tuple[str, str, int]


@derived_object
class _Alone(ms.runner.PyRunner):  # type: ignore[misc]
    """TVM's runner while no other search runs programs; ``waited`` counts the seconds until then."""

    def __init__(self) -> None:
        super().__init__()
        self.runner, self.waited = ms.runner.LocalRunner(), 0.0

    def run(self, runner_inputs: list[ms.runner.RunnerInput]) -> list[ms.runner.RunnerFuture]:
        """Runs a batch; MetaSchedule calls this."""
        start = time.perf_counter()
        with machine_to_itself():
            self.waited += time.perf_counter() - start
            return list(self.runner.run(runner_inputs))


@derived_object
class _Recorder(ms.measure_callback.PyMeasureCallback):  # type: ignore[misc]
    """Records the seconds, without waits, and the latency of every measured program; ends a search that takes too long.

    Args:
        runner: Runs the programs.
        trials: Number of trials of a complete search.
        deadline: Time, in seconds since the epoch, after which an incomplete search ends with an error.
    """

    def __init__(self, runner: _Alone, trials: int, deadline: float) -> None:
        super().__init__()
        self.runner, self.start = runner, time.perf_counter()
        self.trials, self.deadline = trials, deadline
        self.points: Points = []

    def apply(
        self, _scheduler: Any, _task_id: int, _candidates: Sequence[Any], _built: Sequence[Any], ran: Sequence[Any]
    ) -> None:
        """Records a batch; MetaSchedule calls this after each one."""
        elapsed = time.perf_counter() - self.start - self.runner.waited
        self.points += [[elapsed, latency] for latency in latencies_of(ran)]
        if len(self.points) < self.trials and time.time() > self.deadline:
            raise WorkError(f"ended after {len(self.points)} trials, as the time ran out")


def gpu_target(text: str) -> tvm.target.Target:
    """The target of a tag or JSON; that of this machine's GPU if it is empty."""
    if not text:
        return tvm.target.Target.from_device("cuda")
    return tvm.target.Target(json.loads(text) if text.startswith("{") else text)


def search(task: SingleTask, name: str, seed: int, arguments: argparse.Namespace, library: Path) -> dict[str, Any]:
    """Runs one search and writes its fastest program.

    Args:
        task: The task.
        name: Of the cost model.
        seed: Of the search and the model.
        arguments: The options of the script, with the folder ``work`` of the models, ``store`` and ``deadline``.
        library: Where to write the program.

    Returns:
        Its ``points``, the seconds of each phase, and the number of batches that the graph model failed for.
    """
    np.random.seed(seed)  # XGBoost models first draw scores from numpy's global generator
    torch.set_num_threads(usable_cores())
    import_tensor_intrin()
    quiet_console()
    target, module = gpu_target(arguments.target), task.module()
    model = _model(name, seed, arguments)
    runner = _Alone()
    recorder = _Recorder(runner, arguments.trials, arguments.deadline)
    with tempfile.TemporaryDirectory() as folder, ms.Profiler() as profiler:
        database = ms.tir_integration.tune_tir(
            module,
            target,
            folder,
            max_trials_global=arguments.trials,
            num_trials_per_iter=arguments.trials_per_round,
            builder=PooledBuilder(_build_pool()),
            runner=runner,
            cost_model=model,
            strategy=ms.search_strategy.EvolutionarySearch(
                population_size=arguments.population_size, init_min_unmeasured=arguments.valid_samples
            ),
            measure_callbacks=[recorder, *ms.MeasureCallback.create("default")],
            num_tuning_cores=usable_cores(),
            seed=seed + 1,
        )
        if not recorder.points:
            raise WorkError("no program was measured, as too few sampled programs were valid; increase the population")
        schedule = ms.tir_integration.compile_tir(database, module, target)
        phases = phase_seconds({str(phase): float(seconds) for phase, seconds in profiler.get().items()})
        if schedule is not None:
            build_program(schedule.mod, target).export_library(str(library))
    result = {"points": recorder.points, "phases_s": phases, "waited_s": runner.waited, "target": str(target)}
    if isinstance(model, GNNCostModel):
        result |= {"failed_batches": model.search.failed, "reason": model.search.reason}
    return result


@cache
def _build_pool() -> BuildPool[Any]:
    """The worker processes of all searches of this process."""
    return BuildPool(build_and_export)


def _model(name: str, seed: int, arguments: argparse.Namespace) -> Any:
    """A new cost model."""
    if name == "gnn-a100":
        return GNNCostModel(CostModel.load(arguments.work / GNN, UpdateSettings(seed=seed)))
    if name == "xgb-a100":
        programs = GraphStore(arguments.store).load(with_features=True)
        return xgb_with_records(arguments.work / XGB, programs, seed, usable_cores())
    if name == "xgb":
        return xgb(seed, usable_cores(), num_warmup_samples=1)
    return ms.cost_model.RandomModel(seed=seed)


def measure_again(name: str, libraries: Sequence[Path], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """See :func:`single_tasks.measure_again`."""
    device = tvm.device("cpu" if gpu_target(arguments.target).kind.name == "llvm" else "cuda", 0)
    return single_tasks.measure_again(chosen(GPU_TASKS, arguments)[name], libraries, device)


def _take_cores(numbers: Any, processes: int) -> None:
    """Gives this process, and those that it starts, every n-th core."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[numbers.get() :: processes])
    warnings.simplefilter("ignore")


def _search_and_save(name: str, model: str, seed: int, arguments: argparse.Namespace, path: Path) -> str:
    """Runs a search and saves it unless it is saved or the deadline has passed; returns what happened."""
    if path.exists():
        return "was saved"
    if time.time() > arguments.deadline:
        return "not started, as the time ran out"
    # TVM raises errors of any type, and the other searches are worth something without this one.
    try:
        result = search(chosen(GPU_TASKS, arguments)[name], model, seed, arguments, path.with_suffix(".so"))
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    write_text(path, json.dumps(result))
    return "finished"


def run_all(arguments: argparse.Namespace, finished: Path) -> dict[Run, Path]:
    """Runs the searches that are not saved in a folder, and returns the path of each; writes the JSON after each.

    All models search a task before the next one: when the time runs out, the comparisons so far are complete.
    """
    todo = [
        (name, model, seed)
        for seed in range(arguments.seeds)
        for name in chosen(GPU_TASKS, arguments)
        for model in arguments.models
    ]
    sizes = "-".join(str(getattr(arguments, option)) for option in _SIZES)
    paths = {
        (name, model, seed): finished / f"{name.replace(': ', '.').replace(' ', '-')}.{model}.{seed}.{sizes}.json"
        for name, model, seed in todo
    }
    context = multiprocessing.get_context("spawn")
    numbers = context.Queue()
    for number in range(arguments.at_once):
        numbers.put(number)
    with ProcessPoolExecutor(arguments.at_once, context, _take_cores, (numbers, arguments.at_once)) as pool:
        jobs = {pool.submit(_search_and_save, *run, arguments, paths[run]): run for run in todo}
        try:
            for job in as_completed(jobs):
                console.print(f"{jobs[job]}: {job.result()}", highlight=False)
                report(arguments, paths, ())
        except BrokenProcessPool:
            console.print("a search ended its process; the others are not run")
    return paths


def report(arguments: argparse.Namespace, paths: Mapping[Run, Path], again: Sequence[Mapping[str, Any]]) -> None:
    """Writes the JSON of the finished searches and of the last measurements; the settings are those of what ran."""
    done = {run: json.loads(path.read_text()) for run, path in paths.items() if path.exists()}
    per_run = [
        {"task": name, "model": model, "seed": seed, "best_s": best(found["points"])}
        | {"wall_clock_s": found["points"][-1][0], "improvements": improvements(found["points"])}
        | {"latencies_s": [latency for _, latency in found.pop("points")]}
        | found
        for (name, model, seed), found in done.items()
    ]
    settings: dict[str, Any] = {"planned": len(paths), "finished": len(done)}
    settings["models"] = list(dict.fromkeys(model for _, model, _ in done))
    settings["seeds"] = len({seed for _, _, seed in done})
    settings |= {option: getattr(arguments, option) for option in (*_SIZES, "at_once", "programs_per_task")}
    settings |= {"target": str(gpu_target(arguments.target)), "folder": arguments.folder.resolve().name}
    tasks = chosen(GPU_TASKS, arguments)
    settings["flops"] = {name: tasks[name].flops for name in dict.fromkeys(name for name, _, _ in done)}
    settings["gpu"] = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    metrics = {"against": finite(_against(arguments, paths)), "runs": finite(per_run), "measured_again": again}
    write_result(arguments.json, "gpu_search", settings, metrics)


def _against(arguments: argparse.Namespace, paths: Mapping[Run, Path]) -> dict[str, Any]:
    """The figures of the searches that are done, relative to each of TVM's models."""
    points = {run: json.loads(path.read_text())["points"] for run, path in paths.items() if path.exists()}
    runs: Runs = {run: found for run, found in points.items() if improvements(found)}
    return {one: compare_runs(runs, one) for one in ("xgb", "xgb-a100") if one in arguments.models}


def benchmark(arguments: argparse.Namespace, finished: Path) -> None:
    """Runs what is missing in the folder ``finished``, prints the tables and writes the JSON."""
    arguments.deadline = time.time() + arguments.seconds
    arguments.work, arguments.store = finished, pretrain(arguments, finished)
    paths = run_all(arguments, finished)
    again: list[dict[str, Any]] = []
    pool: ProcessPoolExecutor | None = None
    for name in chosen(GPU_TASKS, arguments):
        libraries = {run: path.with_suffix(".so") for run, path in paths.items() if run[0] == name}
        libraries = {run: library for run, library in libraries.items() if library.exists()}
        if not libraries:
            continue
        pool = pool or ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
        try:
            rows = pool.submit(measure_again, name, list(libraries.values()), arguments).result()
        except Exception as error:
            console.print(f"{name}: {type(error).__name__}: {error}", highlight=False)
            # A program that crashes leaves the GPU unusable for its process.
            pool.shutdown()
            pool = None
            continue
        again += [
            {"task": name, "model": run[1], "seed": run[2]} | row for run, row in zip(libraries, rows, strict=True)
        ]
        report(arguments, paths, again)
    if pool is not None:
        pool.shutdown()
    for baseline, metrics in _against(arguments, paths).items():
        console.print(comparison_table(metrics, baseline))
    lines = [
        (row["task"], row["model"], str(row["seed"]), f"{1e3 * row['latency_s']:#.4g}", f"{row['difference']:.1e}")
        for row in again
    ]
    console.print(table_of("fastest programs, measured again", ("task", "model", "seed", "ms", "difference"), lines))


def main() -> None:
    """Reads the options and runs the benchmark."""
    options = parser(__doc__)
    add_options(options)
    options.add_argument("--target", default="", help="a tag or JSON of TVM instead of this machine's GPU")
    options.add_argument("--tasks", nargs="+", choices=GPU_TASKS, default=list(GPU_TASKS), metavar="TASK")
    options.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS[:3]))
    options.add_argument("--trials", type=int, default=32)
    options.add_argument("--trials-per-round", type=int, default=8)
    options.add_argument("--population-size", type=int, default=128, help="512 in TVM, where rounds have 64 trials")
    options.add_argument("--valid-samples", type=int, default=50, help="samples that a round starts from, as in TVM")
    options.add_argument("--seeds", type=int, default=1)
    options.add_argument("--at-once", type=int, default=1, help="number of searches at the same time")
    options.add_argument("--seconds", type=float, default=float("inf"), help="searches end after this time")
    quick: dict[str, Any] = {"epochs": 1, "folds": 2, "programs_per_task": 8, "trials": 2, "trials_per_round": 2}
    run_saved(options, "gpu_search", benchmark, **quick)


if __name__ == "__main__":
    main()
