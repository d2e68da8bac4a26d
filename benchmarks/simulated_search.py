"""TVM's own search of tasks, where boosted trees instead of the machine tell the latency of a program.

Surrogate models (as in NAS-Bench-301, Siems et al. 2020) learn the latencies of a task from the records of the searches
of ``drop_in.py``, from the features of TVM's XGBModel and of this package together; MetaSchedule then searches with
them. A search takes a minute on one core, has no noise, and several run at once, so that settings of exploration and of
updates can be compared over tasks and seeds. What a surrogate has not seen it interpolates: whatever is better here has
to be measured with ``drop_in.py``. Finished searches are saved; the same command resumes.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import tvm
import xgboost
from rich.progress import track
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms
from tvm.s_tir.meta_schedule.runner.local_runner import LocalRunnerFuture

from common import WORK, console, parser, run_saved, shipped_version, table_of, write_result
from drop_in import MODELS as SEARCHED
from drop_in import file_name, with_settings
from drop_in_meta_schedule import BASELINES, search
from search_curves import Runs, best, improvements
from single_tasks import CPU_TASKS, SMALL, chosen
from tvm_gnn_cost import CostModel, GNNCostModel, InputError
from tvm_gnn_cost.evaluation.metrics import pairwise_accuracy, r2
from tvm_gnn_cost.files import write_text
from tvm_gnn_cost.schedulers.database.folder import per_store_features
from tvm_gnn_cost.schedulers.meta_schedule.preload import import_tensor_intrin
from tvm_gnn_cost.schedulers.meta_schedule.search_log import quiet_console
from tvm_gnn_cost.schedulers.meta_schedule.target import local_target
from tvm_gnn_cost.schedulers.meta_schedule.work_dir import latency

#: Name -> makes a cost model from a seed. The first is what the others are compared with.
MODELS: dict[str, Callable[[int], Any]] = {
    "GNNCostModel()": lambda _seed: GNNCostModel(),
    "without exploration": lambda _seed: with_settings(explored=0),
    "without updates": lambda _seed: with_settings(trees=0),
    "60 trees, learning rate 0.2": lambda _seed: with_settings(trees=60, learning_rate=0.2),
    "6 programs of each structure": lambda _seed: with_settings(explored=6),
    "XGBModel(num_warmup_samples=1)": lambda seed: BASELINES["XGBModel(num_warmup_samples=1)"](seed, Path()),
}

_XGBOOST = {"max_depth": 6, "eta": 0.05, "subsample": 0.8, "colsample_bytree": 0.3, "min_child_weight": 2, "nthread": 1}
_TREES, _BOOSTERS, _FOLDS = 400, 2, 5

#: Numbers of programs after which latencies are compared.
_AFTER = (1, 16, 64, 128, 200)


class Surrogate:
    """Predicts the latency of a task's programs.

    Args:
        task: The unscheduled module.
        boosters: Models of the logarithm of the seconds, whose mean counts.
    """

    def __init__(self, task: tvm.IRModule, boosters: Sequence[xgboost.Booster] = ()) -> None:
        self.task, self.boosters, self.model = task, list(boosters), CostModel.load()

    def fit(self, modules: Sequence[tvm.IRModule], seconds: npt.NDArray[np.float64]) -> dict[str, float]:
        """Trains on P scheduled modules and their latencies, float64[P].

        Returns:
            R² of the logarithm and pairwise accuracy, cross-validated.
        """
        rows, logarithm = self._features(modules), np.log(seconds)
        fold = np.random.default_rng(0).permutation(len(rows)) % _FOLDS
        held_out = np.zeros(len(rows))
        for number in range(_FOLDS):
            booster = _train(rows[fold != number], logarithm[fold != number], 0)
            held_out[fold == number] = booster.predict(xgboost.DMatrix(rows[fold == number]))
        self.boosters = [_train(rows, logarithm, seed) for seed in range(_BOOSTERS)]
        return {"r2": r2(held_out, logarithm), "pairwise_accuracy": pairwise_accuracy(-held_out, -logarithm)}

    def seconds(self, modules: Sequence[tvm.IRModule]) -> list[float]:
        """The predicted latency of each module."""
        rows = xgboost.DMatrix(self._features(modules))
        predicted: list[float] = np.exp(np.mean([one.predict(rows) for one in self.boosters], axis=0)).tolist()
        return predicted

    def _features(self, modules: Sequence[tvm.IRModule]) -> npt.NDArray[np.float32]:
        """Sum, least and largest value over the buffer stores of each program, with both kinds of features."""
        target = local_target()
        candidates = [ms.MeasureCandidate(tvm.s_tir.Schedule(module), []) for module in modules]
        per_store = per_store_features(self.task, target, candidates)
        stores = self.model.scorer.buffer_stores(self.model.graphs(modules, target))
        pooled = []
        for number, theirs in enumerate(per_store):
            ours = stores.x[stores.batch == number]
            pooled.append(
                np.concatenate([[len(ours)], *((x.sum(0), x.min(0), x.max(0)) for x in (theirs, ours))], None)
            )
        return np.asarray(pooled, np.float32)


def _train(rows: npt.NDArray[np.float32], logarithm: npt.NDArray[np.float64], seed: int) -> xgboost.Booster:
    return xgboost.train(_XGBOOST | {"seed": seed}, xgboost.DMatrix(rows, logarithm), _TREES)


@derived_object
class _Builder(ms.builder.PyBuilder):  # type: ignore[misc]
    """Builds nothing: the path of a program is its latency."""

    def __init__(self, surrogate: Surrogate) -> None:
        super().__init__()
        self.surrogate, self.points = surrogate, list[list[float]]()

    def build(self, build_inputs: list[ms.builder.BuilderInput]) -> list[ms.builder.BuilderResult]:
        """Predicts the latencies of a batch; MetaSchedule calls this."""
        seconds = self.surrogate.seconds([one.mod for one in build_inputs])
        self.points += [[0.0, one] for one in seconds]
        return [ms.builder.BuilderResult(repr(one), None) for one in seconds]


@derived_object
class _Runner(ms.runner.PyRunner):  # type: ignore[misc]
    """Runs nothing; see :class:`_Builder`."""

    def run(self, runner_inputs: list[ms.runner.RunnerInput]) -> list[ms.runner.RunnerFuture]:
        """Returns the latencies of a batch; MetaSchedule calls this."""
        return [LocalRunnerFuture([float(one.artifact_path)], None) for one in runner_inputs]


def simulate(surrogate: Surrogate, model: Any, seed: int, trials: int) -> list[list[float]]:
    """Searches with TVM's settings; 0 and the latency of each program in the order of measurement."""
    quiet_console()
    # XGBoost models first draw scores from NumPy's global generator.
    np.random.seed(seed)
    builder = _Builder(surrogate)
    with tempfile.TemporaryDirectory() as folder:
        ms.tir_integration.tune_tir(
            surrogate.task,
            local_target(),
            folder,
            max_trials_global=trials,
            builder=builder,
            runner=_Runner(),
            cost_model=model,
            measure_callbacks=[ms.measure_callback.AddToDatabase(), ms.measure_callback.UpdateCostModel()],
            num_tuning_cores=1,
            seed=seed + 1,
        )
    return builder.points


def _fit_and_save(task: str, folders: Sequence[Path], arguments: argparse.Namespace, path: Path) -> None:
    """Trains the surrogate of a task, and writes its boosters and then its accuracy, to ``path``."""
    import_tensor_intrin()
    databases = [ms.database.JSONDatabase(work_dir=str(folder)) for folder in folders]
    records = [record for database in databases for record in database.get_all_tuning_records()]
    seconds = np.array([latency(record) for record in records])
    ran = np.flatnonzero(np.isfinite(seconds))
    if len(ran) < _FOLDS:
        raise InputError(f"the records of '{task}' have {len(ran)} programs that ran, fewer than {_FOLDS}")
    surrogate = Surrogate(chosen(CPU_TASKS, arguments)[task].module())
    accuracy = surrogate.fit([records[number].as_measure_candidate().sch.mod for number in ran], seconds[ran])
    for number, booster in enumerate(surrogate.boosters):
        booster.save_model(path.with_suffix(f".{number}.ubj"))
    write_text(path, json.dumps({"programs": len(ran)} | accuracy))


def _search_and_save(task: str, model: str, seed: int, arguments: argparse.Namespace, fitted: Path, path: Path) -> None:
    torch.set_num_threads(1)
    import_tensor_intrin()
    boosters = [xgboost.Booster(_XGBOOST, model_file=fitted.with_suffix(f".{i}.ubj")) for i in range(_BOOSTERS)]
    surrogate = Surrogate(chosen(CPU_TASKS, arguments)[task].module(), boosters)
    write_text(path, json.dumps(simulate(surrogate, MODELS[model](seed), seed, arguments.trials)))


def records_of(task: str, folder: Path) -> list[Path]:
    """The records of the searches of a task, of any model, seed and machine."""
    names = (file_name(f"{task} {model}", "*.records") for model in SEARCHED)
    # The name of a model may begin with that of another.
    return sorted({path for name in names for path in folder.glob(name)})


def benchmark(arguments: argparse.Namespace, finished: Path) -> None:
    """Runs what is missing in the folder ``finished``, prints the tables and writes the JSON."""
    finished.mkdir(parents=True, exist_ok=True)
    # Searches with another checkpoint are repeated.
    arguments.checkpoint = shipped_version()
    if arguments.quick:
        arguments.records = finished
        for name, task in SMALL.items():
            search(task, ms.cost_model.RandomModel(seed=0), 0, 8, finished / file_name(f"{name} RandomModel()", ".so"))
    # A process for each job: TVM keeps what it has compiled.
    with ProcessPoolExecutor(arguments.at_once, get_context("spawn"), max_tasks_per_child=1) as pool:
        fitted = _fit_all(arguments, finished, pool)
        found = _search_all(arguments, finished, fitted, pool)
    surrogates = {task: json.loads(path.read_text()) for task, path in fitted.items()}
    rows = [(task, *(f"{number:.3g}" for number in one.values())) for task, one in surrogates.items()]
    console.print(table_of("surrogates", ("task", "programs", "cross-validated R²", "pairwise accuracy"), rows))
    first = arguments.models[0]
    columns = ("model", *(f"after {trials}" for trials in _AFTER), "least", "largest", "searches")
    console.print(table_of(f"latency / that of {first}, geometric mean", columns, _rows(found, first)))
    runs = [
        dict(zip(("task", "model", "seed"), run, strict=True)) | {"improvements": improvements(points)}
        for run, points in found.items()
    ]
    settings = {"trials": arguments.trials, "seeds": arguments.seeds, "checkpoint": arguments.checkpoint}
    write_result(arguments.json, "simulated_search", settings, {"surrogates": surrogates, "runs": runs})


def _fit_all(arguments: argparse.Namespace, finished: Path, pool: ProcessPoolExecutor) -> dict[str, Path]:
    """Task -> its surrogate, of the records that there are now."""
    fitted, jobs = {}, []
    for task in chosen(CPU_TASKS, arguments):
        folders = records_of(task, arguments.records)
        if not folders:
            raise InputError(f"{arguments.records} has no records of '{task}'; run drop_in.py --tasks '{task}' first")
        fitted[task] = finished / file_name(task, f".{len(folders)}.json")
        if not fitted[task].exists():
            jobs.append(pool.submit(_fit_and_save, task, folders, arguments, fitted[task]))
    for job in track(as_completed(jobs), "training surrogates", len(jobs), console=console, transient=True):
        job.result()
    return fitted


def _search_all(
    arguments: argparse.Namespace, finished: Path, fitted: Mapping[str, Path], pool: ProcessPoolExecutor
) -> Runs:
    """The searches of each task with each model and seed."""
    paths = {
        (task, model, seed): finished
        / file_name(f"{fitted[task].stem} {model}", f".{arguments.checkpoint}.{arguments.trials}.{seed}.json")
        for seed in range(arguments.seeds)
        for model in arguments.models
        for task in fitted
    }
    jobs = [
        pool.submit(_search_and_save, *run, arguments, fitted[run[0]], path)
        for run, path in paths.items()
        if not path.exists()
    ]
    for job in track(as_completed(jobs), "searching", len(jobs), console=console, transient=True):
        job.result()
    return {run: json.loads(path.read_text()) for run, path in paths.items()}


def _rows(found: Runs, first: str) -> list[tuple[str, ...]]:
    """A row for each model: latencies relative to those of the first model after as many programs."""
    rows = []
    for name in dict.fromkeys(model for _, model, _ in found):
        mine = {(task, seed): points for (task, model, seed), points in found.items() if model == name}
        ratios = [
            [best(points, trials) / best(found[task, first, seed], trials) for (task, seed), points in mine.items()]
            for trials in _AFTER
        ]
        numbers = (*map(statistics.geometric_mean, ratios), min(ratios[-1]), max(ratios[-1]))
        rows.append((name, *(f"{number:.3f}" for number in numbers), str(len(mine))))
    return rows


def main() -> None:
    """Reads the options and runs the benchmark."""
    options = parser(__doc__)
    options.add_argument("--tasks", nargs="+", choices=CPU_TASKS, default=list(CPU_TASKS), metavar="TASK")
    options.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS), metavar="MODEL")
    options.add_argument("--trials", type=int, default=200)
    options.add_argument("--seeds", type=int, default=1)
    options.add_argument("--at-once", type=int, default=2, help="number of searches at the same time, on one core each")
    options.add_argument("--records", type=Path, default=WORK / "drop_in", help="folder of drop_in.py's searches")
    run_saved(options, "simulated_search", benchmark, models=list(MODELS)[:2], trials=4, seeds=1)


if __name__ == "__main__":
    main()
