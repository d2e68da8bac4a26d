"""Time to score one population of real candidates: the graph model, extraction included, against TVM's XGBModel.

Each of five tasks gives one population, sampled from its design space as the search samples it. Both models score
it in turn in this process, several times; the figure is the median over the populations.
"""

from __future__ import annotations

import resource
import statistics
import warnings
from typing import Any

import numpy as np
from rich.table import Table
from tvm.s_tir import meta_schedule as ms

from common import console, median_seconds, parser, write_result
from tvm_gnn_cost.measuring.exclusive import machine_to_itself
from tvm_gnn_cost.measuring.preload import import_tensor_intrin
from tvm_gnn_cost.networks.relax import extract_tasks, load_network, local_target
from tvm_gnn_cost.tuning.meta_schedule import GNNCostModel

#: Their largest tasks are convolutions of three networks, an attention block and a transposed convolution.
TASKS = ("resnet-18", "mobilenet-v2", "inception-v3", "bert-tiny", "dcgan")


def sample_population(network: str, size: int) -> tuple[ms.TuneContext, list[Any]]:
    """The first round's random candidates of a network's largest task, as an evolutionary search makes them."""
    import_tensor_intrin()
    target = local_target()
    tasks = extract_tasks(load_network(network).mod, target)
    # The longest module text has the most to walk: a convolution or a fused matrix product.
    task = max(tasks, key=lambda task: len(str(task.dispatched[0])))
    context = ms.TuneContext(
        task.dispatched[0],
        target=target,
        space_generator="post-order-apply",
        search_strategy="replay-trace",
        task_name=task.task_name,
        rand_state=1,
    )
    context.pre_tuning(4 * size, size)
    candidates: list[Any] = []
    while len(candidates) < size:
        candidates += context.generate_measure_candidates() or []
    context.post_tuning()
    return context, candidates[:size]


def main() -> None:
    """Times both models on each population and prints the table."""
    options = parser(__doc__)
    options.add_argument("--population", type=int, default=512)
    arguments = options.parse_args()
    size, repeats = (64, 1) if arguments.quick else (arguments.population, 3)
    warnings.simplefilter("ignore")
    gnn = GNNCostModel()
    rows = []
    for network in TASKS[:2] if arguments.quick else TASKS:
        context, candidates = sample_population(network, size)
        xgb = ms.cost_model.XGBModel(num_warmup_samples=1)
        # XGBoost needs trees to predict with: one update on some candidates, with latencies that do not matter here.
        results = [ms.runner.RunnerResult([1e-3 * (1 + i % 7)], None) for i in range(64)]
        xgb.update(context, candidates[:64], results)
        gnn.predict(context, candidates[:64])
        with machine_to_itself():
            before = dict(gnn.search.timings)
            gnn_s = median_seconds(lambda: gnn.predict(context, candidates), repeats)  # noqa: B023
            extraction_s = (gnn.search.timings["extraction"] - before["extraction"]) / repeats
            xgb_s = median_seconds(lambda: xgb.predict(context, candidates), repeats)  # noqa: B023
        rows.append(
            {"task": context.task_name, "network": network, "gnn_s": gnn_s, "extraction_s": extraction_s}
            | {"xgb_s": xgb_s, "speedup": xgb_s / gnn_s}
        )
    speedups = [row["speedup"] for row in rows]
    table = Table(title=f"seconds to score {size} candidates", title_justify="left")
    for column in ("network", "task", "gnn", "of it extraction", "xgb", "speed-up"):
        table.add_column(column, justify="left" if column in ("network", "task") else "right")
    for row in rows:
        cells = [f"{row[name]:.3f}" for name in ("gnn_s", "extraction_s", "xgb_s")]
        table.add_row(row["network"], row["task"], *cells, f"{row['speedup']:.1f}x")
    console.print(table)
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    console.print(f"median speed-up over XGBModel.predict: {statistics.median(speedups):.1f}x; peak {peak_mib:.0f} MiB")
    metrics = {
        "speedup_over_xgb": statistics.median(speedups),
        "speedup_over_xgb_least": min(speedups),
        "speedup_over_xgb_std": float(np.std(speedups)),
        "us_per_candidate_gnn": 1e6 * statistics.median(row["gnn_s"] for row in rows) / size,
        "us_per_candidate_xgb": 1e6 * statistics.median(row["xgb_s"] for row in rows) / size,
        "peak_memory_mib": peak_mib,
        "populations": rows,
    }
    write_result(arguments.json, "prediction", {"population": size, "repeats": repeats, "statistic": "median"}, metrics)


if __name__ == "__main__":
    main()
