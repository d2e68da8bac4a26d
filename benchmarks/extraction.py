"""Time to turn MetaSchedule's candidates into graphs, against TVM's per-store features of the same candidates.

The largest tasks of two networks give a population each. The extraction and ``PerStoreFeature.extract_from`` take turns
in this process; the fastest of several runs counts. Figures a node are those of the full syntax tree with all values.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from rich.table import Table
from tvm.s_tir import meta_schedule as ms

from common import console, parser, write_result
from prediction import largest_tasks, population
from setups import setup
from tvm_gnn_cost import extract_graphs
from tvm_gnn_cost.graphs.program_graph import Detail
from tvm_gnn_cost.measuring.machine import machine_to_itself
from tvm_gnn_cost.schedulers import scheduler

NETWORKS = ("resnet-18", "mobilenet-v2")
CASES: tuple[tuple[Detail, int], ...] = (("tree", 1), ("tree", 2), ("statements", 1), ("statements", 2))


def fastest(functions: dict[str, tuple[Callable[[], Any], int]], rounds: int) -> dict[str, float]:
    """Seconds of each function's fastest run; in every round each has a turn of its own number of runs."""
    times = dict.fromkeys(functions, float("inf"))
    for _ in range(rounds):
        for name, (function, runs) in functions.items():
            for _ in range(runs):
                start = time.perf_counter()
                function()
                times[name] = min(times[name], time.perf_counter() - start)
    return times


def main() -> None:
    """Times both on each population, prints the table and writes the JSON."""
    options = parser(__doc__)
    options.add_argument("--population", type=int, default=512)
    arguments = options.parse_args()
    size, rounds, runs = (64, 1, 10) if arguments.quick else (arguments.population, 3, 10)
    warnings.simplefilter("ignore")
    totals: dict[str, float] = {}
    nodes = statement_nodes = programs = tasks = 0
    target = scheduler("meta-schedule").target()
    for network in (setup().smallest,) if arguments.quick else NETWORKS:
        (task,) = largest_tasks(network, 1)
        context, candidates = setup().context(task, target), population(task, size)
        mods = [candidate.sch.mod for candidate in candidates]
        per_store = ms.feature_extractor.PerStoreFeature()
        functions: dict[str, tuple[Callable[[], Any], int]] = {
            f"{detail}, {threads} threads": (partial(extract_graphs, mods, detail=detail, threads=threads), runs)
            for detail, threads in CASES
        }
        functions["per-store"] = (partial(per_store.extract_from, context, candidates), 1)
        with machine_to_itself():
            times = fastest(functions, rounds)
        for name, seconds in times.items():
            totals[name] = totals.get(name, 0.0) + seconds
        nodes += len(extract_graphs(mods).node_type)
        statement_nodes += len(extract_graphs(mods, detail="statements").node_type)
        programs += len(mods)
        tasks += 1

    table = Table(title=f"Extraction of {programs} candidates ({nodes / programs:.0f} nodes each in the full tree)")
    for heading in ("", "microseconds a program", "nanoseconds a node", "times as fast as PerStoreFeature"):
        table.add_column(heading, justify="left" if not heading else "right")
    for name, seconds in totals.items():
        counted = statement_nodes if name.startswith("statements") else nodes
        per_node = "" if name == "per-store" else f"{seconds / counted * 1e9:.0f}"
        table.add_row(name, f"{seconds / programs * 1e6:.1f}", per_node, f"{totals['per-store'] / seconds:.0f}")
    console.print(table)

    metrics = {
        "ns_per_node": totals["tree, 1 threads"] / nodes * 1e9,
        "ns_per_node_two_threads": totals["tree, 2 threads"] / nodes * 1e9,
        "us_per_program": totals["tree, 1 threads"] / programs * 1e6,
        "us_per_program_statements": totals["statements, 1 threads"] / programs * 1e6,
        "us_per_program_per_store_feature": totals["per-store"] / programs * 1e6,
        # PerStoreFeature runs on all cores: so does the extraction here.
        "speedup_over_per_store_feature": totals["per-store"] / totals["tree, 2 threads"],
        "nodes_per_program": nodes / programs,
        "nodes_per_program_statements": statement_nodes / programs,
    }
    settings = {"population": size, "tasks": tasks, "rounds": rounds, "runs": runs, "quick": arguments.quick}
    write_result(arguments.json, "extraction", settings, metrics)


if __name__ == "__main__":
    main()
