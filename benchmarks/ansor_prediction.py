"""Time to score sampled states of Ansor: the GNN, lowering and extraction included, against ``XGBModel.predict``.

And of it the extraction, against ``auto_scheduler``'s own features of the same states. All in turn in one process, on
the two heaviest tasks of each of ResNet-18 and MobileNet and one of Inception v3. Runs in the environment of
``make ansor``.
"""

from __future__ import annotations

import resource
import statistics
from functools import partial
from typing import Any

from rich.table import Table
from tvm import auto_scheduler
from tvm.auto_scheduler.cost_model import XGBModel
from tvm.auto_scheduler.measure import MeasureInput, MeasureResult

from common import TENSET, console, median_seconds, parser, write_result
from tvm_gnn_cost.datasets.extract_tenset import features_of_states
from tvm_gnn_cost.datasets.tenset import TensetFolder, read_tenset
from tvm_gnn_cost.tuning.auto_scheduler import GNNCostModel

#: Network -> how many of its heaviest tasks.
TASKS = {"resnet_18": 2, "mobilenet": 2, "inception_v3": 1}


def heaviest(data: TensetFolder, network: str, count: int) -> list[auto_scheduler.SearchTask]:
    """The tasks of a network with the most floating-point operations in all of their occurrences."""
    keys = [key for key, weights in data.weights.items() if network in weights]
    keys.sort(key=lambda key: -float(data.tasks[key].compute_dag.flop_ct) * data.weights[key][network])
    return [data.tasks[key] for key in keys[:count]]


def sample(task: auto_scheduler.SearchTask, count: int, seed: int) -> list[Any]:
    """Random states of the task's sketches."""
    parameters = {"sample_init_min_population": count}
    policy = auto_scheduler.SketchPolicy(task, auto_scheduler.RandomModel(), params=parameters, seed=seed, verbose=0)
    states: list[Any] = []
    while len(states) < count:
        states += policy.sample_initial_population()
    return states[:count]


def trained_xgb(task: auto_scheduler.SearchTask, states: list[Any]) -> XGBModel:
    """Ansor's model after one round of a search; what the programs took doesn't matter here."""
    model = XGBModel(verbose_eval=0, num_warmup_sample=1)
    inputs = [MeasureInput(task, state) for state in states]
    model.update(inputs, [MeasureResult([1e-3 * (1 + i)], 0, "", 0.1, 0) for i in range(len(states))])
    return model


def main() -> None:
    """Reads the options, measures, prints the table and writes the JSON."""
    options = parser(__doc__)
    options.add_argument("--states", type=int, default=1000)
    options.add_argument("--repeats", type=int, default=3, help="calls of each model, of which the median counts")
    arguments = options.parse_args()
    count, repeats = (100, 1) if arguments.quick else (arguments.states, arguments.repeats)
    data = read_tenset(TENSET, "cpu-2core")
    gnn = GNNCostModel()
    table = Table(title=f"scoring {count} states", title_justify="left")
    for column in ("task", "GNN, us a state", "of it extraction", "XGBModel", "its features", "speedup"):
        table.add_column(column, justify="left" if column == "task" else "right")
    rows = []
    for network, tasks in TASKS.items():
        for task in heaviest(data, network, tasks):
            states = sample(task, count, seed=0)
            xgb = trained_xgb(task, states[:64])
            gnn.predict(task, states[:8])  # first calls load and allocate
            xgb.predict(task, states[:8])
            before = dict(gnn.search.timings)
            ours = median_seconds(partial(gnn.predict, task, states), repeats)
            extraction = (gnn.search.timings["extraction"] - before["extraction"]) / repeats
            theirs = median_seconds(partial(xgb.predict, task, states), repeats)
            features = median_seconds(partial(features_of_states, task, states), repeats)
            row: dict[str, Any] = {
                "task": f"{network}: {task.desc}",
                "gnn_us": 1e6 * ours / count,
                "extraction_us": 1e6 * extraction / count,
                "xgb_us": 1e6 * theirs / count,
                "features_us": 1e6 * features / count,
                "speedup": theirs / ours,
            }
            rows.append(row)
            cells = [f"{row[name]:.0f}" for name in ("gnn_us", "extraction_us", "xgb_us", "features_us")]
            table.add_row(row["task"], *cells, f"{row['speedup']:.2f}")
    console.print(table)
    speedups = [row["speedup"] for row in rows]
    metrics = {
        "speedup_over_xgb": statistics.median(speedups),
        "speedup_over_xgb_range": [min(speedups), max(speedups)],
        "speedup_over_per_store_feature": statistics.median(row["features_us"] / row["extraction_us"] for row in rows),
        "tasks": rows,
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    console.print(f"extraction against its features: {metrics['speedup_over_per_store_feature']:.2f}")
    console.print(f"median speedup {metrics['speedup_over_xgb']:.2f} ({min(speedups):.2f} to {max(speedups):.2f})")
    settings = {"states": count, "repeats": repeats, "quick": arguments.quick}
    write_result(arguments.json, "ansor_prediction", settings, metrics)


if __name__ == "__main__":
    main()
