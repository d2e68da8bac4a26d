"""Changes one argument of TVM's own search of a task: its cost model.

``tune_tir`` with TVM's design space, builder, runner and settings, of tasks of networks that the shipped checkpoint did
not learn from. The cost models are ``GNNCostModel()``, its two parts alone, ``XGBModel()``, whose scores are random
until it has 100 measurements, the same from its first measurement on, the same with our measured programs as if it had
made them, and random scores. Afterwards the fastest programs of a task are compared with NumPy and timed interleaved.
Finished searches are saved; the same command resumes. Nothing else may run on the machine.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from scipy.special import expit
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from common import DATA, console, parser, run_saved, table_of, write_result
from gpu_pretraining import xgb, xgb_with_records
from search_curves import Points, best, improvements
from single_tasks import CPU_TASKS, SMALL, SingleTask, measure_again
from stores import extract_store
from tvm_gnn_cost import CostModel, GNNCostModel, GraphStore
from tvm_gnn_cost.datasets.split import TEST_NETWORKS
from tvm_gnn_cost.files import write_text
from tvm_gnn_cost.measuring.machine import machine_to_itself, usable_cores
from tvm_gnn_cost.schedulers.meta_schedule.builder import build_program
from tvm_gnn_cost.schedulers.meta_schedule.preload import import_tensor_intrin
from tvm_gnn_cost.schedulers.meta_schedule.search import phase_seconds
from tvm_gnn_cost.schedulers.meta_schedule.search_log import quiet_console
from tvm_gnn_cost.schedulers.meta_schedule.target import local_target
from tvm_gnn_cost.schedulers.meta_schedule.work_dir import latencies_of
from tvm_gnn_cost.schedulers.meta_schedule.xgb_baseline import XGBBaseline
from tvm_gnn_cost.training.pipeline import split_programs, train_xgb

#: Task, cost model and seed.
Run = tuple[str, str, int]

#: The model that the others are compared with.
_BASELINE = "XGBModel()"

#: Trials after which latencies are compared.
_AFTER = (1, 16, 64, 200)


@derived_object
class _Trees(ms.cost_model.PyCostModel):  # type: ignore[misc]
    """The boosted trees of the shipped checkpoint, which do not learn in a search."""

    def __init__(self) -> None:
        super().__init__()
        import_tensor_intrin()
        self.model = CostModel.load()

    def predict(self, context: ms.TuneContext, candidates: Sequence[ms.MeasureCandidate]) -> npt.NDArray[np.float64]:
        """float64[n]: scores in [0, 1]; MetaSchedule calls this."""
        graphs = self.model.graphs([one.sch.mod for one in candidates], context.target, "skip")
        scores: npt.NDArray[np.float64] = expit(self.model.scorer.tree_scores(graphs))
        return scores

    def update(self, _context: ms.TuneContext, _candidates: Sequence[Any], _results: Sequence[Any]) -> None:
        """Learns nothing; MetaSchedule calls this."""

    def load(self, path: str) -> None:
        """Is not used."""

    def save(self, path: str) -> None:
        """Is not used."""


def _network(_seed: int, _runs: Path) -> Any:
    return GNNCostModel(CostModel(replace(CostModel.load().checkpoint, trees=None)))


def _xgb_of_our_records(seed: int, runs: Path) -> Any:
    """XGBModel as if it had measured the programs that the shipped checkpoint learned from."""
    store = extract_store(DATA["meta-schedule"], runs.parent / "stores", "statements")
    path = runs / "xgb.json"
    if not path.exists():
        programs = GraphStore(store).load(with_features=True)
        train_xgb(XGBBaseline(), programs, split_programs(programs, TEST_NETWORKS["meta-schedule"], 0)).save(path)
    return xgb_with_records(path, store, seed, usable_cores())


#: Name -> makes a cost model from a seed and the folder of the runs.
MODELS: dict[str, Callable[[int, Path], Any]] = {
    "GNNCostModel()": lambda _seed, _runs: GNNCostModel(),
    "its trees alone": lambda _seed, _runs: _Trees(),
    "its network alone": _network,
    _BASELINE: lambda seed, _runs: xgb(seed, usable_cores()),
    "XGBModel(num_warmup_samples=1)": lambda seed, _runs: xgb(seed, usable_cores(), num_warmup_samples=1),
    "XGBModel, our records": _xgb_of_our_records,
    "RandomModel()": lambda seed, _runs: ms.cost_model.RandomModel(seed=seed),
}


@derived_object
class _Recorder(ms.measure_callback.PyMeasureCallback):  # type: ignore[misc]
    """Records the seconds and the latency of every measured program, in the order of measurement."""

    def __init__(self) -> None:
        super().__init__()
        self.start, self.points = time.perf_counter(), list[list[float]]()

    def apply(
        self, _scheduler: Any, _task_id: int, _candidates: Sequence[Any], _built: Sequence[Any], ran: Sequence[Any]
    ) -> None:
        """Records a batch; MetaSchedule calls this after each one."""
        elapsed = time.perf_counter() - self.start
        self.points += [[elapsed, latency] for latency in latencies_of(ran)]


def search(task: SingleTask, model: str, seed: int, trials: int, runs: Path, library: Path) -> dict[str, Any]:
    """Runs one search and writes its fastest program.

    Returns:
        Its ``points``, and the seconds of each phase.
    """
    np.random.seed(seed)  # XGBoost models first draw scores from numpy's global generator
    quiet_console()
    cost_model = MODELS[model](seed, runs)
    target, module, recorder = local_target(), task.module(), _Recorder()
    with tempfile.TemporaryDirectory() as folder, ms.Profiler() as profiler, machine_to_itself():
        database = ms.tir_integration.tune_tir(
            module,
            target,
            folder,
            max_trials_global=trials,
            cost_model=cost_model,
            measure_callbacks=[recorder, *ms.MeasureCallback.create("default")],
            num_tuning_cores=usable_cores(),
            seed=seed + 1,
        )
        schedule = ms.tir_integration.compile_tir(database, module, target)
    if schedule is not None:
        build_program(schedule.mod, target).export_library(str(library))
    phases = phase_seconds({str(phase): float(seconds) for phase, seconds in profiler.get().items()})
    return {"points": recorder.points, "phases_s": phases}


def _search_and_save(task: str, model: str, seed: int, arguments: argparse.Namespace, path: Path) -> None:
    found = search(_tasks(arguments)[task], model, seed, arguments.trials, arguments.runs, path.with_suffix(".so"))
    write_text(path, json.dumps(found))


def _measure_again(task: str, libraries: Sequence[Path], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    with machine_to_itself():
        return measure_again(_tasks(arguments)[task], libraries, tvm.cpu())


def _tasks(arguments: argparse.Namespace) -> Mapping[str, SingleTask]:
    return SMALL if arguments.quick else CPU_TASKS


def _in_process(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of a function in another process: TVM keeps what it has compiled, and a program may crash."""
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def benchmark(arguments: argparse.Namespace, finished: Path) -> None:
    """Runs what is missing in the folder ``finished``, prints the tables, and writes the JSON after each task."""
    arguments.runs = finished
    finished.mkdir(parents=True, exist_ok=True)
    runs: dict[Run, dict[str, Any]] = {}
    again: dict[Run, dict[str, Any]] = {}
    for seed in range(arguments.seeds):
        for task in [one for one in _tasks(arguments) if arguments.quick or one in arguments.tasks]:
            paths = {}
            for model in arguments.models:
                name = "".join(letter if letter.isalnum() else "-" for letter in f"{task} {model}")
                path = finished / f"{name}.{arguments.trials}.{seed}.json"
                console.print(f"{task}, {model}, seed {seed}", highlight=False)
                if not path.exists():
                    _in_process(_search_and_save, task, model, seed, arguments, path)
                runs[task, model, seed] = json.loads(path.read_text())
                if path.with_suffix(".so").exists():
                    paths[task, model, seed] = path.with_suffix(".so")
            rows = _in_process(_measure_again, task, list(paths.values()), arguments)
            again |= dict(zip(paths, rows, strict=True))
            _write(arguments, runs, again)
    for baseline in (one for one in (_BASELINE, "XGBModel, our records") if one in arguments.models):
        heads = ("model", *(f"after {trials}" for trials in _AFTER), "measured again", "largest", "wall clock")
        console.print(table_of(f"latency / that of {baseline}", heads, comparison(runs, again, baseline)))


def _write(arguments: argparse.Namespace, runs: Mapping[Run, Any], again: Mapping[Run, Any]) -> None:
    per_run = [
        {"task": task, "model": model, "seed": seed, "best_s": best(found["points"])}
        | {"wall_clock_s": found["points"][-1][0], "phases_s": found["phases_s"]}
        | {"improvements": improvements(found["points"]), "again": again.get((task, model, seed))}
        for (task, model, seed), found in runs.items()
    ]
    settings = {"trials": arguments.trials, "seeds": arguments.seeds, "threads": usable_cores()}
    settings |= {"models": arguments.models, "target": str(local_target())}
    write_result(arguments.json, "drop_in", settings, {"runs": per_run})


def comparison(
    runs: Mapping[Run, Mapping[str, Any]], again: Mapping[Run, Mapping[str, Any]], baseline: str
) -> list[tuple[str, ...]]:
    """A row for each model: geometric means over tasks and seeds, relative to a baseline of the same task and seed.

    The columns are the fastest latency after each of :data:`_AFTER`, the final programs measured again, the largest of
    those ratios, and the wall clock.
    """
    rows = []
    for model in dict.fromkeys(model for _, model, _ in runs):
        ratios: list[list[float]] = []
        for task, name, seed in runs:
            run, other = (task, name, seed), (task, baseline, seed)
            if name != model or other not in runs or run not in again or other not in again:
                continue
            points: tuple[Points, Points] = (runs[run]["points"], runs[other]["points"])
            after = [best(points[0], trials) / best(points[1], trials) for trials in _AFTER]
            measured = again[run]["latency_s"] / again[other]["latency_s"]
            ratios.append([*after, measured, points[0][-1][0] / points[1][-1][0]])
        if ratios:
            *means, final, clock = np.exp(np.log(ratios).mean(0))
            largest = max(row[-2] for row in ratios)
            rows.append((model, *(f"{value:.2f}" for value in (*means, final, largest, clock))))
    return rows


def main() -> None:
    """Reads the options and runs the benchmark."""
    options = parser(__doc__)
    options.add_argument("--tasks", nargs="+", choices=CPU_TASKS, default=list(CPU_TASKS), metavar="TASK")
    options.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="MODEL")
    options.add_argument("--trials", type=int, default=200)
    options.add_argument("--seeds", type=int, default=3)
    run_saved(options, "drop_in", benchmark, models=["GNNCostModel()", "its trees alone", _BASELINE], trials=4, seeds=1)


if __name__ == "__main__":
    main()
