"""Searches the heaviest tasks with the graph model, TVM's XGBModel and a random one: latency against time.

The two heaviest tasks of ResNet-18 and of MobileNetV2, by floating-point operations times weight, each searched by
MetaSchedule with its own settings (population 512) and each cost model, once a seed. Every finished run is saved at
once, and a run that is there is not run again: interrupt and go on as you like.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import statistics
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import LogLocator, NullFormatter
from rich.progress import Progress
from rich.table import Table
from tvm.ir.utils import derived_object
from tvm.s_tir import meta_schedule as ms

from common import WORK, console, parser, write_result
from tvm_gnn_cost.measuring.builder import PooledBuilder
from tvm_gnn_cost.measuring.local import local_runner
from tvm_gnn_cost.networks.relax import extract_tasks, load_network, local_target
from tvm_gnn_cost.training.checkpoint import DEFAULT
from tvm_gnn_cost.tuning.meta_schedule import GNNCostModel
from tvm_gnn_cost.tuning.online import OnlineSettings
from tvm_gnn_cost.tuning.progress import quiet_console

NETWORKS = ("resnet-18", "mobilenet-v2")
MODELS = ("gnn", "xgb", "random")


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


def reached(points: list[list[float]], latency: float) -> tuple[float, float]:
    """Seconds and trials after which a run had a program at least as fast; infinite if it never did."""
    for trial, (seconds, found) in enumerate(points, 1):
        if found <= latency:
            return seconds, trial
    return math.inf, math.inf


def compare_runs(runs: dict[tuple[str, str, int], list[list[float]]]) -> dict[str, Any]:
    """Fractions of XGB's wall clock and trials that the others need for XGB's final latency of the same task and seed.

    Medians over tasks and seeds, in which a run that never gets there counts as infinite. The final latency is the
    least of many noisy measurements; "near" asks for no more than 5% above it.
    """
    out: dict[str, Any] = {}
    for model in ("gnn", "random"):
        found: dict[str, list[float]] = {}
        for (task, name, seed), points in runs.items():
            xgb = runs.get((task, "xgb", seed))
            if name != model or xgb is None:
                continue
            goal = min(latency for _, latency in xgb)
            seconds, trials = reached(points, goal)
            near, _ = reached(points, 1.05 * goal)
            row = {
                "wall_clock_to_xgb_final": seconds / xgb[-1][0],
                "trials_to_xgb_final": trials / len(xgb),
                "wall_clock_to_near_xgb_final": near / xgb[-1][0],
                "whole_wall_clock": points[-1][0] / xgb[-1][0],
                "final_latency": min(latency for _, latency in points) / goal,
            }
            for key, value in row.items():
                found.setdefault(key, []).append(value)
        if found:
            never = sum(map(math.isinf, found["wall_clock_to_xgb_final"]))
            medians = {key: statistics.median(values) for key, values in found.items()}
            out[model] = medians | {
                "final_latency_worst": max(found["final_latency"]),
                "never_reached": never,
                "runs": len(found["final_latency"]),
            }
    return out


def finite(value: Any) -> Any:
    """The same with None for infinite numbers, which JSON does not have."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    return None if isinstance(value, float) and math.isinf(value) else value


def plot(runs: dict[tuple[str, str, int], list[list[float]]], path: Path) -> None:
    """Best latency against trials and against wall clock, a row a task, a thin line a seed."""
    tasks = list(dict.fromkeys(task for task, _, _ in runs))
    figure, axes = plt.subplots(len(tasks), 2, figsize=(11, 3 * len(tasks)), squeeze=False)
    colours = dict(zip(MODELS, ("tab:blue", "tab:orange", "tab:gray"), strict=True))
    for row, name in zip(axes, tasks, strict=True):
        for (task, model, _), points in runs.items():
            if name != task:
                continue
            best = np.minimum.accumulate([latency for _, latency in points]) * 1e3
            row[0].plot(np.arange(1, len(best) + 1), best, color=colours[model], alpha=0.8, label=model)
            row[1].step([s for s, _ in points], best, where="post", color=colours[model], alpha=0.8, label=model)
        row[0].set(title=name, ylabel="best latency, ms", xlabel="trials")
        row[1].set(xlabel="seconds")
        for axis in row:
            axis.set_yscale("log")
            axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.yaxis.set_major_formatter("{x:g}")
            axis.yaxis.set_minor_formatter(NullFormatter())
            handles = dict(zip(axis.get_legend_handles_labels()[1], axis.get_legend_handles_labels()[0], strict=True))
            axis.legend(handles.values(), handles.keys())
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def planned(arguments: Any) -> Iterator[tuple[str, ms.ExtractedTask, str, int]]:
    """The runs in order: all models of one task and seed after one another, so that they see the same machine."""
    networks = NETWORKS[:1] if arguments.quick else NETWORKS
    count = 1 if arguments.quick else 2
    tasks = [(f"{network}: {t.task_name}", t) for network in networks for t in heaviest_tasks(network, count)]
    for seed in range(1 if arguments.quick else arguments.seeds):
        for name, task in tasks:
            for model in MODELS:
                yield name, task, model, seed


def warm_up(builder: PooledBuilder, task: ms.ExtractedTask) -> None:
    """Starts the workers and the imports that the first search would pay for alone."""
    made = builder.build([ms.builder.BuilderInput(task.dispatched[0], local_target())])
    if made[0].error_msg is None:
        shutil.rmtree(Path(made[0].artifact_path).parent, ignore_errors=True)
    GNNCostModel()


def main() -> None:
    """Runs what is missing, prints the table, draws the plot and writes the JSON."""
    options = parser(__doc__)
    options.add_argument("--trials", type=int, default=64)
    options.add_argument("--trials-per-round", type=int, default=16)
    options.add_argument("--population", type=int, default=512)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--runs", type=Path, default=WORK / "search", help="where finished runs are kept")
    arguments = options.parse_args()
    if arguments.quick:
        arguments.trials, arguments.trials_per_round, arguments.population = 4, 2, 8
        arguments.runs = Path(tempfile.mkdtemp())
    warnings.simplefilter("ignore")
    arguments.runs.mkdir(parents=True, exist_ok=True)
    runs: dict[tuple[str, str, int], list[list[float]]] = {}
    todo = list(planned(arguments))
    # A run of another checkpoint is another run.
    checkpoint = hashlib.sha256(DEFAULT.read_bytes()).hexdigest()[:8]
    builder = PooledBuilder()
    warm_up(builder, todo[0][1])
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("searching", total=len(todo))
        for name, task, model, seed in todo:
            progress.update(bar, description=f"{name}, {model}, seed {seed}")
            settings = f"{arguments.trials}-{arguments.trials_per_round}-{arguments.population}"
            which = f"{model}-{checkpoint}" if model == "gnn" else model
            path = arguments.runs / f"{name.replace(': ', '.')}.{which}.{seed}.{settings}.json"
            if not path.exists():
                sizes = arguments.trials, arguments.trials_per_round, arguments.population
                points = search(task, model, seed, *sizes, builder)
                temporary = path.with_suffix(".tmp")
                temporary.write_text(json.dumps(points))
                temporary.replace(path)
            runs[name, model, seed] = json.loads(path.read_text())
            progress.advance(bar)
    metrics = compare_runs(runs)
    table = Table(title="medians of fractions of XGB's; never: most runs did not get there", title_justify="left")
    columns = {
        "wall clock": "wall_clock_to_xgb_final",
        "trials": "trials_to_xgb_final",
        "wall clock to 5% above": "wall_clock_to_near_xgb_final",
        "final latency": "final_latency",
        "worst": "final_latency_worst",
        "whole wall clock": "whole_wall_clock",
    }
    for column in ("model", *columns, "never reached"):
        table.add_column(column, justify="right")
    for model, row in metrics.items():
        cells = ["never" if math.isinf(row[key]) else f"{row[key]:.2f}" for key in columns.values()]
        table.add_row(model, *cells, f"{row['never_reached']} of {row['runs']}")
    console.print(table)
    picture = (arguments.json or arguments.runs / "search.json").with_suffix(".png")
    plot(runs, picture)
    console.print(f"curves: {picture}")
    per_run = [
        {"task": task, "model": model, "seed": seed, "best_s": min(p[1] for p in points), "wall_clock_s": points[-1][0]}
        for (task, model, seed), points in runs.items()
    ]
    settings_out = {name: getattr(arguments, name) for name in ("trials", "trials_per_round", "population", "seeds")}
    write_result(
        arguments.json,
        "search",
        settings_out,
        finite({**metrics.get("gnn", {}), "models": metrics}) | {"runs": per_run},
    )


if __name__ == "__main__":
    main()
