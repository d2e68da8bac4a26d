"""Time to extract graphs of MetaSchedule's candidates and TVM's per-store features of the same candidates.

Runs on a population of the largest task of each of two networks. The extraction and ``PerStoreFeature.extract_from``
are interleaved in this process; the result has the minimum of several runs. Times per node are of full syntax trees.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

from tvm.s_tir import meta_schedule as ms

from common import console, parser, table_of, write_result
from prediction import largest_tasks, population
from setups import setup
from tvm_gnn_cost import extract_graphs
from tvm_gnn_cost.graphs.program_graph import Detail
from tvm_gnn_cost.measuring.machine import machine_to_itself
from tvm_gnn_cost.schedulers import scheduler

NETWORKS = ("resnet-18", "mobilenet-v2")
CASES: tuple[tuple[Detail, int], ...] = (("tree", 1), ("tree", 2), ("statements", 1), ("statements", 2))


def fastest(functions: dict[str, tuple[Callable[[], Any], int]], rounds: int) -> dict[str, float]:
    """Minimum seconds of each function, which runs the given number of times in each round."""
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

    title = f"Extraction of {programs} candidates ({nodes / programs:.0f} nodes per full tree)"
    counted = {False: nodes, True: statement_nodes}
    rows = [
        (
            *(name, f"{seconds / programs * 1e6:.1f}"),
            "" if name == "per-store" else f"{seconds / counted[name.startswith('statements')] * 1e9:.0f}",
            f"{totals['per-store'] / seconds:.0f}",
        )
        for name, seconds in totals.items()
    ]
    columns = ("", "microseconds per program", "nanoseconds per node", "times as fast as PerStoreFeature")
    console.print(table_of(title, columns, rows))

    metrics = {
        "ns_per_node": totals["tree, 1 threads"] / nodes * 1e9,
        "ns_per_node_two_threads": totals["tree, 2 threads"] / nodes * 1e9,
        "us_per_program": totals["tree, 1 threads"] / programs * 1e6,
        "us_per_program_statements": totals["statements, 1 threads"] / programs * 1e6,
        "us_per_program_per_store_feature": totals["per-store"] / programs * 1e6,
        # PerStoreFeature runs on all cores.
        "speedup_over_per_store_feature": totals["per-store"] / totals["tree, 2 threads"],
        "nodes_per_program": nodes / programs,
        "nodes_per_program_statements": statement_nodes / programs,
    }
    settings = {"population": size, "tasks": tasks, "rounds": rounds, "runs": runs, "quick": arguments.quick}
    write_result(arguments.json, "extraction", settings, metrics)


if __name__ == "__main__":
    main()
