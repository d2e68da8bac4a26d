"""Agreement of two measurements of the same programs, an upper bound for the accuracy of any cost model.

The programs of some test tasks are measured twice in each of two ways: sequentially, as TVM's runners do, and
interleaved, as ``collect`` does. Run it alone on the machine.
"""

from __future__ import annotations

import statistics
import time
import warnings
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.progress import track

from common import DATA, console, parser, table_of, write_result
from tvm_gnn_cost.datasets.split import TEST_NETWORKS
from tvm_gnn_cost.schedulers.database.records import Database, DatabaseRecord, read_database
from tvm_gnn_cost.schedulers.meta_schedule.builder import Program
from tvm_gnn_cost.schedulers.meta_schedule.preload import import_tensor_intrin
from tvm_gnn_cost.schedulers.meta_schedule.runner import run_built
from tvm_gnn_cost.schedulers.meta_schedule.scheduler import SCHEDULER, MetaSchedule
from tvm_gnn_cost.schedulers.scheduler import CollectPlan, MeasureSettings

#: Relative difference of the latencies of two programs that count as different.
_DIFFERENT = 0.03

#: Name -> settings, and whether the programs of a task are interleaved.
WAYS = {
    "sequential": (MeasureSettings(repeats=3, turns=2), False),
    "interleaved": (MeasureSettings(CollectPlan.repeats, CollectPlan.turns), True),
}

Latencies = list[npt.NDArray[np.float64]]


def measure(
    database: Database, tasks: list[list[DatabaseRecord]], settings: MeasureSettings, interleaved: bool
) -> tuple[Latencies, float]:
    """Seconds of the programs of each task, NaN for a failure, and the mean time of running a program."""
    assert isinstance(SCHEDULER, MetaSchedule)
    target = SCHEDULER.target()
    latencies, spent, count = [], 0.0, 0
    for records in track(tasks, "measuring", console=console, transient=True):
        candidates = [database.replay(record) for record in records]
        built = SCHEDULER.build_pool.build([Program(candidate.sch.mod, target) for candidate in candidates])
        start = time.perf_counter()
        if interleaved:
            outcomes = run_built(candidates, built, settings)
        else:
            both = zip(candidates, built, strict=True)
            outcomes = [outcome for pair in both for outcome in run_built([pair[0]], [pair[1]], settings)]
        spent, count = spent + time.perf_counter() - start, count + len(records)
        latencies.append(np.array([min(outcome.seconds, default=np.nan) for outcome in outcomes]))
    return latencies, spent / count


def agreement(first: Latencies, second: Latencies) -> dict[str, float]:
    """Agreement of two measurements of the same programs; every pair has the same weight."""
    alike, differ, regret, changes = [], [], [], []
    for both in zip(first, second, strict=True):
        valid = np.isfinite(both[0]) & np.isfinite(both[1])
        before, after = both[0][valid], both[1][valid]
        for i, j in combinations(range(len(before)), 2):
            alike.append((before[i] < before[j]) == (after[i] < after[j]))
            differ.append(abs(np.log(before[i] / before[j])) > _DIFFERENT)
        regret.append(float(after.min() / after[np.argmin(before)]))
        changes += np.abs(np.log(after / before)).tolist()
    same, different = np.array(alike), np.array(differ)
    return {
        "pairs": float(same.mean()),
        "pairs_that_differ": float(same[different].mean()),
        "top1_unweighted": statistics.fmean(regret),
        "change_median": float(np.median(changes)),
        "change_90th_percentile": float(np.percentile(changes, 90)),
    }


def main() -> None:
    """Measures, prints the table and writes the JSON."""
    options = parser(__doc__)
    options.add_argument(
        "--data", type=Path, default=DATA["meta-schedule"][0], help="what 'tvm-gnn-cost collect' wrote"
    )
    options.add_argument("--tasks", type=int, default=30, help="number of test tasks to measure")
    arguments = options.parse_args()
    warnings.simplefilter("ignore")
    import_tensor_intrin()
    database = read_database(arguments.data)
    by_task: dict[str, list[DatabaseRecord]] = {}
    for record in database.records:
        task = database.task(record)
        if not record.failure and not set(TEST_NETWORKS["meta-schedule"]).isdisjoint(task.weights):
            by_task.setdefault(task.hash, []).append(record)
    names = sorted(name for name, records in by_task.items() if len(records) > 1)
    chosen = np.random.default_rng(0).permutation(len(names))[: 1 if arguments.quick else arguments.tasks]
    tasks = [by_task[names[i]][: 6 if arguments.quick else None] for i in chosen.tolist()]
    measure(database, tasks[:1], MeasureSettings(), True)  # starts the processes
    metrics: dict[str, Any] = {"tasks": len(tasks), "programs": sum(map(len, tasks)), "ways": {}}
    for name, (settings, interleaved) in WAYS.items():
        measured = [measure(database, tasks, settings, interleaved) for _ in range(2)]
        (first, _), (second, _) = measured
        both = [agreement(first, second), agreement(second, first)]
        means = {key: statistics.fmean(one[key] for one in both) for key in both[0]}
        metrics["ways"][name] = means | {"seconds_per_program": statistics.fmean(seconds for _, seconds in measured)}
    title = f"{arguments.data.name}: {metrics['programs']} programs measured twice"
    keys = next(iter(metrics["ways"].values()))
    rows = [(key, *(f"{metrics['ways'][name][key]:.3f}" for name in WAYS)) for key in keys]
    console.print(table_of(title, ("", *WAYS), rows))
    write_result(arguments.json, "retest", {"data": arguments.data.name, "quick": arguments.quick}, metrics)


if __name__ == "__main__":
    main()
