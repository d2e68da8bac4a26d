"""Time to score a population of sampled programs: the graph model, including extraction, and TVM's XGBoost model.

Runs in either environment, on a population for each of the largest tasks of a few networks. Both models score it
several times in this process; the extraction of graphs and TVM's per-store features are also timed alone. The result
has medians over the populations. The network scores only the quarter of a population that the trees rank best; "same
best" is the share of the 16 best programs that stay the same if it scores all.
"""

from __future__ import annotations

import resource
import statistics
import warnings
from functools import partial
from itertools import cycle, islice
from typing import Any

import numpy as np

from common import console, median_seconds, parser, result_name, table_of, write_result
from setups import setup
from tvm_gnn_cost import GNNCostModel
from tvm_gnn_cost.measuring.machine import machine_to_itself
from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.schedulers.scheduler import Task

#: Number of candidates that a round of a search may measure.
_BEST = 16

#: Number of programs that XGBoost is trained on before it is timed.
LEARNED = 64


def largest_tasks(network: str, count: int) -> list[Task]:
    """The tasks of a network with the largest programs."""
    tasks = scheduler().tasks(scheduler().network(network), scheduler().target())
    return sorted(tasks, key=lambda task: -setup().size(task))[:count]


def population(task: Task, size: int) -> list[Any]:
    """Random candidates of a task, repeated if the design space is smaller, as in a search."""
    return list(islice(cycle(scheduler().sample(task, scheduler().target(), size, seed=0)), size))


def shortlist_agrees(gnn: Any, task: Task, candidates: list[Any]) -> float:
    """Share of the best candidates that are also the best when the network scores all candidates."""
    graphs, model = setup().graphs(task, scheduler().target(), candidates), gnn.search.model
    chosen, complete = (
        np.argsort(-scores, kind="stable")[:_BEST] for scores in (model.predict(graphs), model.scorer.score(graphs))
    )
    return len(np.intersect1d(chosen, complete)) / len(complete)


def score(gnn: Any, task: Task, candidates: list[Any], repeats: int) -> dict[str, float]:
    """Seconds of both models and their parts for all candidates."""
    target, own = scheduler().target(), setup()
    context, first = own.context(task, target), candidates[:LEARNED]
    xgb = own.xgb(0)
    # Any latencies will do, as long as they differ.
    own.update(xgb, task, target, first, [1e-3 * (1 + i % 7) for i in range(len(first))])
    for model in (gnn, xgb):
        model.predict(context, first)  # first calls load and allocate
    with machine_to_itself():
        before = gnn.search.timings["extraction"]
        gnn_s = median_seconds(partial(gnn.predict, context, candidates), repeats)
        extraction_s = (gnn.search.timings["extraction"] - before) / repeats
        xgb_s = median_seconds(partial(xgb.predict, context, candidates), repeats)
        features_s = median_seconds(partial(own.features, task, target, candidates), repeats)
    return {
        "gnn_s": gnn_s,
        "extraction_s": extraction_s,
        "xgb_s": xgb_s,
        "features_s": features_s,
        "speedup": xgb_s / gnn_s,
        "shortlist_agrees": shortlist_agrees(gnn, task, candidates),
    }


def main() -> None:
    """Reads the options, measures, prints the table and writes the JSON."""
    options = parser(__doc__)
    options.add_argument("--population", type=int, default=setup().population, help="programs per task")
    options.add_argument("--repeats", type=int, default=3, help="calls of each model, for the median")
    arguments = options.parse_args()
    size, repeats = (64, 1) if arguments.quick else (arguments.population, arguments.repeats)
    networks = {setup().smallest: 1} if arguments.quick else setup().scored
    warnings.simplefilter("ignore")
    gnn = GNNCostModel()
    rows: list[dict[str, Any]] = []
    for network, count in networks.items():
        for task in largest_tasks(network, count):
            rows.append({"task": task.name, "network": network, **score(gnn, task, population(task, size), repeats)})
    cells = [
        (
            *(row["network"], row["task"]),
            *(f"{1e6 * row[name] / size:.0f}" for name in ("gnn_s", "extraction_s", "xgb_s", "features_s")),
            *(f"{row['speedup']:.2f}x", f"{100 * row['shortlist_agrees']:.0f}%"),
        )
        for row in rows
    ]
    columns = ("network", "task", "gnn", "its extraction", "xgb", "its features", "speedup", "same best")
    console.print(table_of(f"microseconds per program, {size} at a time", columns, cells, ("task",)))
    speedups = [row["speedup"] for row in rows]
    metrics = {
        "speedup_over_xgb": statistics.median(speedups),
        "speedup_over_xgb_least": min(speedups),
        "speedup_over_xgb_range": [min(speedups), max(speedups)],
        "speedup_over_xgb_std": float(np.std(speedups)),
        "speedup_over_per_store_feature": statistics.median(row["features_s"] / row["extraction_s"] for row in rows),
        "shortlist_agrees": statistics.fmean(row["shortlist_agrees"] for row in rows),
        "us_per_candidate_gnn": 1e6 * statistics.median(row["gnn_s"] for row in rows) / size,
        "us_per_candidate_xgb": 1e6 * statistics.median(row["xgb_s"] for row in rows) / size,
        "peak_memory_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "populations": rows,
    }
    console.print(
        f"median speedup over XGBModel.predict: {metrics['speedup_over_xgb']:.2f}x; of the extraction over its "
        f"features: {metrics['speedup_over_per_store_feature']:.2f}x; peak {metrics['peak_memory_mib']:.0f} MiB"
    )
    settings = {"population": size, "repeats": repeats, "statistic": "median", "quick": arguments.quick}
    write_result(arguments.json, result_name("prediction", scheduler().name), settings, metrics)


if __name__ == "__main__":
    main()
