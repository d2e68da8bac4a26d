"""Searches the heaviest tasks with the graph model, TVM's XGBModel and a random one: latency against time.

The two heaviest tasks of ResNet-18 and of MobileNetV2, by floating-point operations times weight, each searched by
MetaSchedule with its own settings (population 512) and each cost model, once a seed. Every finished run is saved at
once, and a run that is there is not run again: interrupt and go on as you like.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from common import WORK
from search_runs import read_options, run_all
from tvm_gnn_cost.measuring.builder import PooledBuilder
from tvm_gnn_cost.measuring.local import local_runner
from tvm_gnn_cost.networks.relax import extract_tasks, load_network, local_target
from tvm_gnn_cost.training.checkpoint import DEFAULT
from tvm_gnn_cost.tuning.meta_schedule import GNNCostModel
from tvm_gnn_cost.tuning.online import OnlineSettings
from tvm_gnn_cost.tuning.progress import quiet_console

NETWORKS = ("resnet-18", "mobilenet-v2")


@derived_object
class _Curve(ms.measure_callback.PyMeasureCallback):  # type: ignore[misc]
    """Notes when each measured program was known, and its latency."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.start = start
        self.points: list[tuple[float, float]] = []

    def apply(self, _scheduler: Any, _task: int, _candidates: Any, _builds: Any, results: Any) -> None:
        now = time.perf_counter() - self.start
        for result in results or []:
            seconds = [float(s) for s in result.run_secs or []]
            self.points.append((now, statistics.median(seconds) if seconds else float("inf")))


def heaviest_tasks(network: str, count: int) -> list[ms.ExtractedTask]:
    """The tasks with the most floating-point operations, all their occurrences together."""
    from tvm.s_tir.analysis import estimate_tir_flops

    tasks = extract_tasks(load_network(network).mod, local_target())
    return sorted(tasks, key=lambda t: -estimate_tir_flops(t.dispatched[0]) * int(t.weight))[:count]


def make_model(name: str, seed: int) -> Any:
    """A fresh cost model."""
    if name == "gnn":
        return GNNCostModel(settings=OnlineSettings(seed=seed))
    if name == "xgb":
        # TVM's default answers at random until 100 measurements, more than these searches make.
        return ms.cost_model.XGBModel(num_warmup_samples=1)
    return ms.cost_model.RandomModel(seed=seed)


def search(
    task: ms.ExtractedTask, model: str, seed: int, trials: int, per_round: int, population: int, builder: PooledBuilder
) -> list[Any]:
    """One search: (seconds since its start, latency in seconds) of each measured program, in order."""
    quiet_console()
    np.random.seed(seed)  # XGBModel's random answers come from numpy's global generator
    strategy = ms.search_strategy.EvolutionarySearch(population_size=population)
    with tempfile.TemporaryDirectory() as folder:
        tasks, weights = ms.relax_integration.extracted_tasks_to_tune_contexts(
            [task], folder, strategy=strategy, seed=seed
        )
        runner, cost_model = local_runner(), make_model(model, seed)
        curve = _Curve(time.perf_counter())
        callbacks = [*ms.measure_callback.MeasureCallback.create("default"), curve]
        ms.tune_tasks(
            tasks=tasks,
            task_weights=weights,
            work_dir=folder,
            max_trials_global=trials,
            num_trials_per_iter=per_round,
            builder=builder,
            runner=runner,
            cost_model=cost_model,
            measure_callbacks=callbacks,
        )
        return curve.points


def warm_up(builder: PooledBuilder, task: ms.ExtractedTask) -> None:
    """Starts the workers and the imports that the first search would pay for alone."""
    made = builder.build([ms.builder.BuilderInput(task.dispatched[0], local_target())])
    if made[0].error_msg is None:
        shutil.rmtree(Path(made[0].artifact_path).parent, ignore_errors=True)
    GNNCostModel()


def main() -> None:
    """Reads the options."""
    arguments = read_options(__doc__, WORK / "search")
    warnings.simplefilter("ignore")
    networks, count = (("perceptron",), 1) if arguments.quick else (NETWORKS, 2)
    tasks = {f"{network}: {t.task_name}": t for network in networks for t in heaviest_tasks(network, count)}
    builder = PooledBuilder()
    warm_up(builder, next(iter(tasks.values())))
    sizes = arguments.trials, arguments.trials_per_round, arguments.population

    def run(name: str, model: str, seed: int) -> list[Any]:
        return search(tasks[name], model, seed, *sizes, builder)

    run_all("search", arguments, list(tasks), run, DEFAULT)


if __name__ == "__main__":
    main()
