"""How well measuring a data set's programs again repeats their order: what no cost model of it can do better than.

Every program of some test tasks is built and measured anew on this machine, which must be the one that the data set
comes from, and the order within each task is compared with the recorded one.
"""

from __future__ import annotations

import shutil
import statistics
import warnings
from pathlib import Path

import numpy as np
from rich.progress import track
from rich.table import Table
from tvm.s_tir import meta_schedule as ms

from common import DATA, console, parser, write_result
from tvm_gnn_cost.datasets.collect import load_target
from tvm_gnn_cost.datasets.meta_schedule import Collection, Record, read_collection
from tvm_gnn_cost.evaluation.metrics import pairwise_accuracy
from tvm_gnn_cost.measuring.builder import PooledBuilder
from tvm_gnn_cost.measuring.local import local_runner
from tvm_gnn_cost.measuring.preload import import_tensor_intrin
from tvm_gnn_cost.networks.catalogue import HELD_OUT


def measure(collection: Collection, records: list[Record], builder: PooledBuilder, data: Path) -> list[float]:
    """Seconds of each record's program, the median of three repeats as in the data set; NaN for one that fails."""
    target = load_target(data)
    candidates = [collection.replay(record) for record in records]
    built = builder.build([ms.builder.BuilderInput(candidate.sch.mod, target) for candidate in candidates])
    usable = [i for i, one in enumerate(built) if one.error_msg is None]
    inputs = [ms.runner.RunnerInput(built[i].artifact_path, "cpu", candidates[i].args_info) for i in usable]
    seconds = [float("nan")] * len(records)
    for i, future in zip(usable, local_runner().run(inputs), strict=True):
        ran = future.result()
        shutil.rmtree(Path(built[i].artifact_path).parent, ignore_errors=True)
        if ran.error_msg is None:
            seconds[i] = statistics.median(float(one) for one in ran.run_secs)
    return seconds


def main() -> None:
    """Measures, prints the table and writes the JSON."""
    options = parser(__doc__)
    options.add_argument("--data", type=Path, default=DATA, help="a collection, see 'tvm-gnn-cost collect --help'")
    options.add_argument("--tasks", type=int, default=24, help="test tasks to measure again")
    arguments = options.parse_args()
    warnings.simplefilter("ignore")
    import_tensor_intrin()
    collection = read_collection(arguments.data)
    by_task: dict[str, list[Record]] = {}
    for record in collection.records:
        task = collection.task(record)
        if not record.failure and not set(HELD_OUT).isdisjoint(task.weights):
            by_task.setdefault(task.hash, []).append(record)
    tasks = sorted(name for name, records in by_task.items() if len(records) > 1)
    chosen = np.random.default_rng(0).permutation(len(tasks))[: 1 if arguments.quick else arguments.tasks]
    builder = PooledBuilder()
    agreement, changes, regret = [], [], []
    for i in track(chosen.tolist(), "measuring again", console=console, transient=True):
        records = by_task[tasks[i]][: 6 if arguments.quick else None]
        first = np.array([statistics.median(record.run_secs) for record in records])
        again = np.array(measure(collection, records, builder, arguments.data))
        first, again = first[np.isfinite(again)], again[np.isfinite(again)]
        agreement.append(pairwise_accuracy(first, again))
        changes += np.abs(np.log(again / first)).tolist()
        regret.append(float(first.min() / first[np.argmin(again)]))
    metrics = {
        "tasks": len(agreement),
        "programs": len(changes),
        "pairwise_accuracy": statistics.fmean(agreement),
        # Of the program that is the fastest this time, in the recorded latencies; a mean over tasks without weights.
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
