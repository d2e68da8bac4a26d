"""The curves of the search benchmark: their comparison and its table."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any

from rich.table import Table

#: Cost models, and TVM's own search with its own design space and XGBoost, as far as a scheduler has another one.
MODELS = ("gnn", "xgb", "random", "tvm")

#: (seconds since the start of the search, latency in seconds) of each measured program, in order.
Points = list[list[float]]

#: (task, model, seed) -> its points.
Runs = dict[tuple[str, str, int], Points]


def reached(points: Points, latency: float) -> tuple[float, float]:
    """Seconds and trials after which a run had a program at least as fast; infinite if it never did."""
    for trial, (seconds, found) in enumerate(points, 1):
        if found <= latency:
            return seconds, trial
    return math.inf, math.inf


def best(points: Points, trials: int | None = None) -> float:
    """The least latency among the first ``trials`` programs, or among all."""
    return min(latency for _, latency in points[:trials])


def improvements(points: Points) -> list[list[float]]:
    """Seconds, trials and latency in seconds whenever a run found a faster program, and at its end."""
    found: list[list[float]] = []
    for trial, (seconds, latency) in enumerate(points, 1):
        if math.isfinite(latency) and (not found or latency < found[-1][2]):
            found.append([seconds, trial, latency])
    return [*found, [points[-1][0], len(points), found[-1][2]]] if found else []


def compare_runs(runs: Runs, baseline: str) -> dict[str, Any]:
    """Fractions of a baseline's wall clock and trials that others need for its final latency of the same task and seed.

    Medians over tasks and seeds, in which a run that never gets there counts as infinite. The final latency is the
    least of many noisy measurements; "near" asks for no more than 5% above it. Latencies after some trials are those of
    the best programs until then, over the baseline's after as many.
    """
    out: dict[str, Any] = {}
    for model in MODELS:
        found: dict[str, list[float]] = {}
        for (task, name, seed), points in runs.items():
            other = runs.get((task, baseline, seed))
            if name != model or name == baseline or other is None:
                continue
            goal = best(other)
            seconds, trials = reached(points, goal)
            near, _ = reached(points, 1.05 * goal)
            row = {
                "wall_clock_to_its_final": seconds / other[-1][0],
                "trials_to_its_final": trials / len(other),
                "wall_clock_to_near_its_final": near / other[-1][0],
                "whole_wall_clock": points[-1][0] / other[-1][0],
                "latency_after_1": best(points, 1) / best(other, 1),
                "latency_after_8": best(points, 8) / best(other, 8),
                "final_latency": best(points) / goal,
            }
            for key, value in row.items():
                found.setdefault(key, []).append(value)
        if found:
            never = sum(map(math.isinf, found["wall_clock_to_its_final"]))
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


def comparison_table(metrics: Mapping[str, Mapping[str, Any]], baseline: str) -> Table:
    """What :func:`compare_runs` found."""
    title = f"medians of fractions of the figures of {baseline}; never: most runs did not get there"
    table = Table(title=title, title_justify="left")
    columns = {
        "wall clock": "wall_clock_to_its_final",
        "trials": "trials_to_its_final",
        "wall clock to 5% above": "wall_clock_to_near_its_final",
        "after 1 trial": "latency_after_1",
        "after 8": "latency_after_8",
        "final latency": "final_latency",
        "worst": "final_latency_worst",
        "whole wall clock": "whole_wall_clock",
    }
    for column in ("model", *columns, "never reached"):
        table.add_column(column, justify="right")
    for model, row in metrics.items():
        cells = ["never" if math.isinf(row[key]) else f"{row[key]:.2f}" for key in columns.values()]
        table.add_row(model, *cells, f"{row['never_reached']} of {row['runs']}")
    return table
