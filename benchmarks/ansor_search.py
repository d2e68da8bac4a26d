"""Searches the heaviest tasks with the graph model, Ansor's XGBModel and a random one: latency against time.

The two heaviest tasks of ResNet-18 and of MobileNet (``relay.testing``), by floating-point operations times weight,
each searched by Ansor's ``SketchPolicy`` with each cost model, once a seed. Every finished run is saved at once, and a
run that is there is not run again: interrupt and go on as you like. Runs in the environment of ``make ansor``.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import auto_scheduler
from tvm.auto_scheduler.measure import PythonBasedMeasureCallback

from common import WORK
from search_runs import read_options, run_all
from tvm_gnn_cost.networks.relay import extract_relay_tasks, load_relay_network, local_target
from tvm_gnn_cost.training.checkpoint import DEFAULT_AUTO_SCHEDULER
from tvm_gnn_cost.tuning.auto_scheduler import GNNCostModel
from tvm_gnn_cost.tuning.online import OnlineSettings

NETWORKS = ("resnet-18", "mobilenet")


class _Curve(PythonBasedMeasureCallback):  # type: ignore[misc]
    """Notes when each measured program was known, and its latency."""

    def __init__(self, start: float) -> None:
        super().__init__()
        self.start = start
        self.points: list[tuple[float, float]] = []

    def callback(self, policy: Any, inputs: Sequence[Any], results: Sequence[Any]) -> None:  # noqa: ARG002
        """Called by ``auto_scheduler`` after each batch."""
        now = time.perf_counter() - self.start
        for result in results:
            seconds = [float(cost) for cost in result.costs]
            self.points.append((now, statistics.median(seconds) if result.error_no == 0 else float("inf")))


def heaviest_tasks(network: str, count: int) -> list[auto_scheduler.SearchTask]:
    """The tasks with the most floating-point operations, all their occurrences together."""
    tasks, weights = extract_relay_tasks(load_relay_network(network), local_target())
    flops = [-float(task.compute_dag.flop_ct) * weight for task, weight in zip(tasks, weights, strict=True)]
    return [tasks[i] for i in np.argsort(flops, kind="stable")[:count].tolist()]


def make_model(name: str, seed: int) -> Any:
    """A fresh cost model."""
    if name == "gnn":
        return GNNCostModel(settings=OnlineSettings(seed=seed))
    if name == "xgb":
        # TVM's default answers at random until 100 measurements, more than these searches make.
        return auto_scheduler.XGBModel(num_warmup_sample=1, verbose_eval=0, seed=seed + 1)
    return auto_scheduler.RandomModel()


def search(
    task: auto_scheduler.SearchTask, model: str, seed: int, trials: int, per_round: int, population: int
) -> list[Any]:
    """One search: (seconds since its start, latency in seconds) of each measured program, in order."""
    np.random.seed(seed)  # random answers come from numpy's global generator
    cost_model = make_model(model, seed)
    curve = _Curve(time.perf_counter())
    policy = auto_scheduler.SketchPolicy(
        task,
        program_cost_model=cost_model,
        params={"evolutionary_search_population": population},
        seed=seed,
        verbose=0,
    )
    options = auto_scheduler.TuningOptions(
        num_measure_trials=trials,
        num_measures_per_round=per_round,
        builder=auto_scheduler.LocalBuilder(),
        runner=auto_scheduler.LocalRunner(timeout=20, number=1, repeat=3, min_repeat_ms=30),
        measure_callbacks=[curve],
        verbose=0,
    )
    task.tune(options, search_policy=policy)
    return curve.points


def main() -> None:
    """Reads the options."""
    arguments = read_options(__doc__, WORK / "ansor-search")
    networks, count = (("mlp",), 1) if arguments.quick else (NETWORKS, 2)
    tasks = {f"{network}: {task.desc}": task for network in networks for task in heaviest_tasks(network, count)}
    # The imports and the first calls, which the first search would pay for alone.
    first = next(iter(tasks.values()))
    GNNCostModel().predict(first, [first.compute_dag.get_init_state()])
    sizes = arguments.trials, arguments.trials_per_round, arguments.population

    def run(name: str, model: str, seed: int) -> list[Any]:
        return search(tasks[name], model, seed, *sizes)

    run_all("ansor_search", arguments, list(tasks), run, DEFAULT_AUTO_SCHEDULER)


if __name__ == "__main__":
    main()
