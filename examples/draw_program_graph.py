"""Extracts the graph of a program, which is the input of the cost model, and draws it.

    python examples/draw_program_graph.py [graph.svg]

Needs TVM 0.27 (make run sets it up).
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import tvm
from matplotlib.figure import Figure
from tvm import te

from tvm_gnn_cost import extract_graphs
from tvm_gnn_cost.graphs.program_graph import ProgramGraphs, Relation
from tvm_gnn_cost.graphs.values import VALUES

COLOURS = {Relation.CHILD: "0.6", Relation.LOOP: "tab:blue", Relation.BUFFER: "tab:orange"}


def scheduled_matmul() -> tvm.IRModule:
    """A matrix product whose columns are split and vectorized."""
    a, b = te.placeholder((64, 64), name="A"), te.placeholder((64, 64), name="B")
    k = te.reduce_axis((0, 64), name="k")
    c = te.compute((64, 64), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")
    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": te.create_prim_func([a, b, c])}))
    rows, columns, inner = schedule.get_loops(schedule.get_sblock("C"))
    outer, vector = schedule.split(columns, [None, 16])
    schedule.reorder(rows, outer, inner, vector)
    schedule.parallel(rows)
    schedule.vectorize(vector)
    return schedule.mod


def places(graph: ProgramGraphs) -> np.ndarray:
    """Positions of the nodes in a drawing of the tree, float64[N, 2]; nodes come before their children."""
    source, target = graph.edge_index[:, graph.edge_type == Relation.CHILD]
    nodes = len(graph.node_type)
    parent = np.full(nodes, -1)
    parent[target] = source
    depth, x = np.zeros(nodes), np.full(nodes, np.nan)
    for node in range(nodes):
        depth[node] = depth[parent[node]] + 1 if parent[node] >= 0 else 0
    leaves = np.setdiff1d(np.arange(nodes), source)
    x[leaves] = np.arange(len(leaves))
    for node in reversed(range(nodes)):
        if np.isnan(x[node]):
            x[node] = x[parent == node].mean()
    return np.stack([x, -depth], axis=1)


def main(picture: Path) -> None:
    """Prints the loops of the graph and draws it."""
    graph = extract_graphs([scheduled_matmul()], detail="statements")
    names = [graph.type_names[i] for i in graph.node_type]
    columns = [name for name, _ in VALUES]
    print(f"{len(names)} nodes, {graph.edge_index.shape[1]} edges, {len(columns)} values per node")
    for node in np.flatnonzero([name == "For" for name in names]):
        # Magnitudes are stored as log2(1 + x).
        extent = 2 ** graph.x[node, columns.index("extent")] - 1
        is_vectorized = graph.x[node, columns.index("kind_vectorized")] > 0
        print(f"loop over {extent:.0f}{', vectorized' if is_vectorized else ''}")

    at = places(graph)
    figure = Figure(figsize=(9, 8), layout="constrained")
    axes = figure.subplots()
    for relation, colour in COLOURS.items():
        for i, (source, target) in enumerate(graph.edge_index[:, graph.edge_type == relation].T):
            axes.annotate(
                "",
                at[target],
                at[source],
                arrowprops={"arrowstyle": "->", "color": colour, "connectionstyle": f"arc3,rad={0.2 * (relation > 0)}"},
            )
            if i == 0:
                axes.plot([], [], color=colour, label=f"{relation.name.lower()} edge")
    for name, place in zip(names, at, strict=True):
        axes.text(
            place[0], place[1], name, ha="center", va="center", fontsize=8, bbox={"boxstyle": "round", "fc": "white"}
        )
    axes.set_xlim(at[:, 0].min() - 1, at[:, 0].max() + 1)
    axes.set_ylim(at[:, 1].min() - 1, 1)
    axes.axis("off")
    axes.legend(loc="lower left")
    figure.savefig(picture)
    print(f"drawn in {picture}")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("program_graph.svg"))
