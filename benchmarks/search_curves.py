"""The curves of the search benchmark: their comparison and its table."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
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


#: The model of ``drop_in.py`` as a user makes it.
OURS = "GNNCostModel()"

#: Models that ``drop_in.py`` compares with; auto_scheduler has another name for the number of samples.
DROP_IN_BASELINES = (
    "XGBModel()",
    "XGBModel(num_warmup_samples=1)",
    "XGBModel(num_warmup_sample=1)",
    "XGBModel, our records",
)

#: Trials after which :func:`drop_in_rows` compares latencies, and the heads of its columns.
_AFTER = (1, 16, 64, 200)
DROP_IN_COLUMNS = (
    *("model", *(f"after {trials}" for trials in _AFTER), "16 / its 64"),
    *("measured again", "largest", "wall clock", "searches"),
)

#: The heads of the columns of :func:`rows_above_fastest`.
ABOVE_FASTEST_COLUMNS = ("model", *(f"after {trials}" for trials in _AFTER), "searches")

#: Columns of :func:`improvements`.
_COLUMNS = {"seconds": 0, "trials": 1}


def _after_imports(run: Mapping[str, Any]) -> dict[str, Any]:
    """A saved run whose clock starts with the first phase of its search, if its scheduler reports phases.

    Before it is TVM's import of its tensor intrinsics, which ``GNNCostModel()`` makes faster, and which XGBModel's
    searches until 2026-11-28 had on their clock, in a process with all modules of the benchmark.
    """
    phases = run["phases_s"].values()
    start = run["wall_clock_s"] - sum(phases) if phases else 0.0
    improved = [[seconds - start, *others] for seconds, *others in run["improvements"]]
    return {**run, "wall_clock_s": run["wall_clock_s"] - start, "improvements": improved}


def _after(run: Mapping[str, Any], limit: float, against: str = "trials") -> float:
    """The minimum latency of a saved run's programs up to a number of trials or seconds.

    Before the first program that was built and ran, it is that program's latency.
    """
    column = _COLUMNS[against]
    first: float = run["improvements"][0][2]
    return min((float(point[2]) for point in run["improvements"] if point[column] <= limit), default=first)


def where(run: Mapping[str, Any]) -> tuple[str, int, str]:
    """Task, seed and processor of a saved run; runs are compared with those of other models at the same place."""
    return run["task"], run["seed"], run["machine"]


def drop_in_rows(runs: Sequence[Mapping[str, Any]], baseline: str) -> list[tuple[str, ...]]:
    """A row for each model of ``drop_in.py``: ratios to a baseline's search of the same task, seed and processor.

    They are the latency after each of :data:`_AFTER` programs, the latency after 16 programs to that of the baseline
    after 64, the final programs measured again, the largest of the latter, the wall clock after the imports, and the
    number of searches. All but the largest are geometric means over tasks and seeds; 16 to 64 is the median.

    Args:
        runs: The searches in the benchmark's JSON.
        baseline: Name of a model.
    """
    runs = [_after_imports(run) for run in runs]
    baselines = {where(run): run for run in runs if run["model"] == baseline and run["again"]}
    rows = []
    for model in dict.fromkeys(run["model"] for run in runs):
        pairs = [
            (run, baselines[where(run)])
            for run in runs
            if run["model"] == model and run["again"] and where(run) in baselines
        ]
        if not pairs:
            continue
        mean = statistics.geometric_mean
        after = [mean(_after(run, trials) / _after(other, trials) for run, other in pairs) for trials in _AFTER]
        early = statistics.median(_after(run, 16) / _after(other, 64) for run, other in pairs)
        again = [run["again"]["latency_s"] / other["again"]["latency_s"] for run, other in pairs]
        clock = mean(run["wall_clock_s"] / other["wall_clock_s"] for run, other in pairs)
        numbers = (*after, early, mean(again), max(again), clock)
        rows.append((model, *(f"{number:.2f}" for number in numbers), str(len(pairs))))
    return rows


def drop_in_rows_of_tasks(runs: Sequence[Mapping[str, Any]], model: str, baseline: str) -> list[tuple[str, ...]]:
    """The row of a model in :func:`drop_in_rows` for each task alone, with the task in place of the model."""
    rows = []
    for task in dict.fromkeys(run["task"] for run in runs):
        of_task = [run for run in runs if run["task"] == task]
        rows += [(task, *row[1:]) for row in drop_in_rows(of_task, baseline) if row[0] == model]
    return rows


def _fastest(runs: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], float]:
    """Task and processor -> the least latency of all searches there, with whichever model."""
    fastest: dict[tuple[str, str], float] = {}
    for run in runs:
        key = run["task"], run["machine"]
        fastest[key] = min(run["improvements"][-1][2], fastest.get(key, math.inf))
    return fastest


def rows_above_fastest(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    """A row for each model of ``drop_in.py``: how far its searches are above the fastest program of all searches.

    They are the latency after each of :data:`_AFTER` programs, relative to the least that any search of the task had
    in the end on the same processor, with whichever model and seed; geometric means over tasks, seeds and processors,
    and the number of searches. The reciprocal says what a model can reach at most beside this one, as far as is known.

    Args:
        runs: The searches in the benchmark's JSON.
    """
    runs = [run for run in runs if run["improvements"]]
    fastest = _fastest(runs)
    rows = []
    for model in dict.fromkeys(run["model"] for run in runs):
        of_model = [run for run in runs if run["model"] == model]
        above = [
            statistics.geometric_mean(_after(run, trials) / fastest[run["task"], run["machine"]] for run in of_model)
            for trials in _AFTER
        ]
        rows.append((model, *(f"{number:.2f}" for number in above), str(len(of_model))))
    return rows


def relative_curves(runs: Sequence[Mapping[str, Any]], against: str) -> dict[str, tuple[list[float], list[float]]]:
    """Model -> points of its mean curve: trials or seconds, and the latency relative to the task's best.

    The mean is geometric, over the tasks, seeds and processors that all models have searched. It begins where all
    searches of the model have a program. The best of a task is that of all its searches on the same machine.

    Args:
        runs: The searches in the benchmark's JSON.
        against: ``trials`` or ``seconds``.
    """
    column = _COLUMNS[against]
    runs = [_after_imports(run) for run in runs if run["improvements"]]
    models = list(dict.fromkeys(run["model"] for run in runs))
    searched = [{where(run) for run in runs if run["model"] == model} for model in models]
    common = set.intersection(*searched) if searched else set()
    fastest = _fastest(runs)
    curves = {}
    for model in models:
        of_model = [run for run in runs if run["model"] == model and where(run) in common]
        if not of_model:
            continue
        x, y = [], []
        first = max(run["improvements"][0][column] for run in of_model)
        places = {point[column] for run in of_model for point in run["improvements"]}
        for place in sorted(place for place in places if place >= first):
            x.append(place)
            ratios = [_after(run, place, against) / fastest[run["task"], run["machine"]] for run in of_model]
            y.append(statistics.geometric_mean(ratios))
        curves[model] = (x, y)
    return curves


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
