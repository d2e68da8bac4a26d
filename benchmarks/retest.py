"""How well a second measurement repeats the order of a collection's programs: an upper bound for any cost model.

Every program of some test tasks is built and measured again on this machine, which must be of the collection's kind.
The order within each task is compared with the recorded one.
"""

from __future__ import annotations

import json
import statistics
import warnings
from pathlib import Path

import numpy as np
from rich.progress import track
from rich.table import Table

from common import DATA, console, parser, write_result
from tvm_gnn_cost.datasets.held_out import TEST_NETWORKS
from tvm_gnn_cost.evaluation.metrics import pairwise_accuracy
from tvm_gnn_cost.measuring.card import check_same
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.schedulers.meta_schedule.preload import import_tensor_intrin
from tvm_gnn_cost.schedulers.meta_schedule.records import Database, DatabaseRecord, read_database
from tvm_gnn_cost.schedulers.scheduler import MeasureSettings, Task


def measure(database: Database, records: list[DatabaseRecord]) -> list[float]:
    """Seconds of each record's program, the median of three repeats as in the data set; NaN for one that fails."""
    meta_schedule, found = scheduler("meta-schedule"), database.workload(records[0])
    task = Task(found.hash, found.name, 1, found.mod)
    candidates = [database.replay(record) for record in records]
    ((_, outcomes),) = meta_schedule.measure([(task, candidates)], meta_schedule.target(), MeasureSettings())
    return [statistics.median(outcome.seconds) if outcome.seconds else float("nan") for outcome in outcomes]


def main() -> None:
    """Measures, prints the table and writes the JSON."""
    options = parser(__doc__)
    options.add_argument("--data", type=Path, default=DATA["meta-schedule"], help="what 'tvm-gnn-cost collect' wrote")
    options.add_argument("--tasks", type=int, default=24, help="test tasks to measure again")
    arguments = options.parse_args()
    warnings.simplefilter("ignore")
    import_tensor_intrin()
    database = read_database(arguments.data)
    target = json.loads(str(scheduler("meta-schedule").target()))
    check_same(arguments.data / "card.json", "the target", database.card.get("target", target), target)
    by_task: dict[str, list[DatabaseRecord]] = {}
    for record in database.records:
        task = database.task(record)
        if not record.failure and not set(TEST_NETWORKS["meta-schedule"]).isdisjoint(task.weights):
            by_task.setdefault(task.hash, []).append(record)
    tasks = sorted(name for name, records in by_task.items() if len(records) > 1)
    chosen = np.random.default_rng(0).permutation(len(tasks))[: 1 if arguments.quick else arguments.tasks]
    agreement, changes, regret = [], [], []
    for i in track(chosen.tolist(), "measuring again", console=console, transient=True):
        records = by_task[tasks[i]][: 6 if arguments.quick else None]
        first = np.array([statistics.median(record.run_secs) for record in records])
        again = np.array(measure(database, records))
        first, again = first[np.isfinite(again)], again[np.isfinite(again)]
        agreement.append(pairwise_accuracy(first, again))
        changes += np.abs(np.log(again / first)).tolist()
        regret.append(float(first.min() / first[np.argmin(again)]))
    metrics = {
        "tasks": len(agreement),
        "programs": len(changes),
        "pairwise_accuracy": statistics.fmean(agreement),
        # By the recorded latencies, of the program that is the fastest now; a mean over tasks without weights.
        "top1_unweighted": statistics.fmean(regret),
        "change_median": float(np.median(changes)),
        "change_90th_percentile": float(np.percentile(changes, 90)),
    }
    table = Table(title=f"{arguments.data.name}: the same programs measured again", title_justify="left")
    for column in ("", "value"):
        table.add_column(column, justify="right" if column else "left")
    for name, value in metrics.items():
        table.add_row(name, f"{value:.3f}" if isinstance(value, float) else str(value))
    console.print(table)
    write_result(arguments.json, "retest", {"data": arguments.data.name, "quick": arguments.quick}, metrics)


if __name__ == "__main__":
    main()
