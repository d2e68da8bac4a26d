"""The curves of the search benchmark: their comparison and its table."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from typing import Any

from rich.table import Table

from common import table_of

#: (seconds since the start of the search, latency in seconds) of each measured program, in order.
Points = list[list[float]]

#: (task, model, seed) -> points.
Runs = dict[tuple[str, str, int], Points]


def reached(points: Points, latency: float) -> tuple[float, float]:
    """Seconds and trials until a run has a program at least as fast; infinite if it never has."""
    for trial, (seconds, measured) in enumerate(points, 1):
        if measured <= latency:
            return seconds, trial
    return math.inf, math.inf


def best(points: Points, trials: int | None = None) -> float:
    """The minimum latency of the first ``trials`` programs, or of all."""
    return min(latency for _, latency in points[:trials])


def improvements(points: Points) -> list[list[float]]:
    """Seconds, trials and latency in seconds of every program that is faster than all before, and of the end."""
    faster: list[list[float]] = []
    for trial, (seconds, latency) in enumerate(points, 1):
        if math.isfinite(latency) and (not faster or latency < faster[-1][2]):
            faster.append([seconds, trial, latency])
    return [*faster, [points[-1][0], len(points), faster[-1][2]]] if faster else []


def compare_runs(runs: Runs, baseline: str) -> dict[str, Any]:
    """Model -> its figures relative to a baseline of the same task and seed, medians over tasks and seeds.

    A run that never reaches the baseline's final latency counts as infinite. That latency is the minimum of many noisy
    measurements; "near" means at most 5% above it. Latencies after some trials are relative to those of the baseline
    after the same number of trials.
    """
    out: dict[str, Any] = {}
    for model in dict.fromkeys(name for _, name, _ in runs):
        ratios: dict[str, list[float]] = {}
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
                ratios.setdefault(key, []).append(value)
        if ratios:
            never = sum(map(math.isinf, ratios["wall_clock_to_its_final"]))
            medians = {key: statistics.median(values) for key, values in ratios.items()}
            out[model] = medians | {
                "final_latency_worst": max(ratios["final_latency"]),
                "never_reached": never,
                "runs": len(ratios["final_latency"]),
            }
    return out


def finite(value: Any) -> Any:
    """The value with None in place of numbers that JSON does not have, infinite ones and NaN."""
    if isinstance(value, dict):
        return {key: finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def comparison_table(metrics: Mapping[str, Mapping[str, Any]], baseline: str) -> Table:
    """The table of the result of :func:`compare_runs`."""
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
    title = f"medians relative to {baseline}; never: most runs did not reach it"
    rows = [
        (
            model,
            *("never" if math.isinf(row[key]) else f"{row[key]:#.3g}" for key in columns.values()),
            f"{row['never_reached']} of {row['runs']}",
        )
        for model, row in metrics.items()
    ]
    return table_of(title, ("model", *columns, "never reached"), rows)
