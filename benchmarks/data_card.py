"""Summary of a collection of MetaSchedule's programs: counts by network and noise; the README of the data quotes it."""

from __future__ import annotations

import statistics
from pathlib import Path

import numpy as np

from common import DATA, HELD_OUT, console, parser, table_of, write_result
from tvm_gnn_cost.datasets.split import networks_named
from tvm_gnn_cost.evaluation.metrics import pairwise_accuracy
from tvm_gnn_cost.schedulers.database.records import read_database

TESTED = HELD_OUT["meta-schedule"]


def main() -> None:
    """Prints the tables and writes the JSON."""
    options = parser(__doc__)
    options.add_argument(
        "--data", type=Path, default=DATA["meta-schedule"][0], help="what 'tvm-gnn-cost collect' wrote"
    )
    arguments = options.parse_args()
    database = read_database(arguments.data)
    by_task: dict[str, list[float]] = {}
    repeats: dict[str, list[tuple[float, ...]]] = {}
    noise, failures, phases = [], 0, {"random": 0, "guided": 0}
    programs: dict[str, int] = {}
    tasks: dict[str, set[str]] = {}
    for record in database.records:
        task = database.task(record)
        for name in task.weights:
            # Single operators count as one network.
            network = name if "/" not in name else "single operators"
            programs[network] = programs.get(network, 0) + 1
            tasks.setdefault(network, set()).add(task.hash)
        phases[record.phase] = phases.get(record.phase, 0) + 1
        if record.failure:
            failures += 1
            continue
        by_task.setdefault(task.hash, []).append(min(record.run_secs))
        # Slow programs have a single repeat.
        if len(record.run_secs) > 1:
            repeats.setdefault(task.hash, []).append(record.run_secs)
        noise.append(statistics.pstdev(record.run_secs) / statistics.mean(record.run_secs))
    spread = [max(latencies) / min(latencies) for latencies in by_task.values()]
    # Agreement of the first repeat with the minimum of the others; hours apart they agree less (retest.py).
    same = [
        pairwise_accuracy(np.array([r[0] for r in rows]), np.array([min(r[1:]) for r in rows]))
        for rows in repeats.values()
    ]
    tested = {network for name in TESTED for network in networks_named(name, tasks)}
    test = {h for network in tested for h in tasks[network]}
    rows = [
        (
            *(network, str(len(tasks[network])), str(programs[network])),
            "test" if network in tested else "training",
        )
        for network in sorted(programs, key=lambda name: -programs[name])
    ]
    columns = ("network", "tasks", "programs", "used for")
    console.print(table_of(f"{arguments.data.name}: programs and tasks by network", columns, rows, ("used for",)))
    metrics = {
        "programs": len(database.records),
        "tasks": len(set().union(*tasks.values())),
        "test_tasks": len(test),
        "failed": failures,
        "left_out": len(database.problems),
        **{f"{phase}_programs": count for phase, count in phases.items()},
        "noise_median": float(np.median(noise)),
        "noise_90th_percentile": float(np.percentile(noise, 90)),
        "retest_pairwise_accuracy": float(np.nanmean(same)),
        "slowest_over_fastest_median": float(np.median(spread)),
        "networks": {n: {"tasks": len(tasks[n]), "programs": programs[n]} for n in sorted(programs)},
    }
    for name, value in metrics.items():
        if not isinstance(value, dict):
            console.print(f"{name}: {value:.4g}" if isinstance(value, float) else f"{name}: {value}")
    write_result(arguments.json, "data_card", {"data": arguments.data.name, "card": database.card}, metrics)


if __name__ == "__main__":
    main()
