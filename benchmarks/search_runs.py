"""What the search benchmarks share: runs that are saved one by one, their comparison, its table and its plot."""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import statistics
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.ticker import LogLocator, NullFormatter
from rich.progress import Progress
from rich.table import Table

from common import console, parser, write_result

MODELS = ("gnn", "xgb", "random")

#: (seconds since the start of the search, latency in seconds) of each measured program, in order.
Points = list[list[float]]


def read_options(description: str | None, runs: Path) -> argparse.Namespace:
    """The options of a search benchmark; ``runs`` is where finished runs are kept."""
    options = parser(description)
    options.add_argument("--trials", type=int, default=64)
    options.add_argument("--trials-per-round", type=int, default=16)
    options.add_argument("--population", type=int, default=512)
    options.add_argument("--seeds", type=int, default=3)
    options.add_argument("--runs", type=Path, default=runs, help="where finished runs are kept")
    arguments = options.parse_args()
    if arguments.quick:
        arguments.trials, arguments.trials_per_round, arguments.population = 4, 2, 8
        arguments.runs = Path(tempfile.mkdtemp())
    arguments.runs.mkdir(parents=True, exist_ok=True)
    return arguments


def reached(points: Points, latency: float) -> tuple[float, float]:
    """Seconds and trials after which a run had a program at least as fast; infinite if it never did."""
    for trial, (seconds, found) in enumerate(points, 1):
        if found <= latency:
            return seconds, trial
    return math.inf, math.inf


def compare_runs(runs: dict[tuple[str, str, int], Points]) -> dict[str, Any]:
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


def plot(runs: dict[tuple[str, str, int], Points], path: Path) -> None:
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


def run_all(
    benchmark: str,
    arguments: argparse.Namespace,
    tasks: Sequence[str],
    search: Callable[[str, str, int], Sequence[Sequence[float]]],
    checkpoint: Path,
) -> None:
    """Runs what is missing, prints the table, draws the plot and writes the JSON.

    Args:
        benchmark: Its name.
        arguments: Those of :func:`read_options`.
        tasks: Names of the tasks.
        search: One search of a task with a model and a seed.
        checkpoint: The graph model's: a run of another one is another run.
    """
    runs: dict[tuple[str, str, int], Points] = {}
    seeds = range(1 if arguments.quick else arguments.seeds)
    # All models of one task and seed after one another, so that they see the same machine.
    todo = [(name, model, seed) for seed in seeds for name in tasks for model in MODELS]
    version = hashlib.sha256(checkpoint.read_bytes()).hexdigest()[:8]
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("searching", total=len(todo))
        for name, model, seed in todo:
            progress.update(bar, description=f"{name}, {model}, seed {seed}")
            settings = f"{arguments.trials}-{arguments.trials_per_round}-{arguments.population}"
            which = f"{model}-{version}" if model == "gnn" else model
            path = arguments.runs / f"{name.replace(': ', '.')}.{which}.{seed}.{settings}.json"
            if not path.exists():
                points = search(name, model, seed)
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
    picture = (arguments.json or arguments.runs / f"{benchmark}.json").with_suffix(".png")
    plot(runs, picture)
    console.print(f"curves: {picture}")
    per_run = [
        {"task": task, "model": model, "seed": seed, "best_s": min(p[1] for p in points), "wall_clock_s": points[-1][0]}
        for (task, model, seed), points in runs.items()
    ]
    settings_out = {name: getattr(arguments, name) for name in ("trials", "trials_per_round", "population", "seeds")}
    write_result(
        arguments.json,
        benchmark,
        settings_out,
        finite({**metrics.get("gnn", {}), "models": metrics}) | {"runs": per_run},
    )
