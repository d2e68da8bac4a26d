"""``tvm-gnn-cost tpugraphs evaluate``."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer
from rich.table import Table

from tvm_gnn_cost.cli.options import JsonOption
from tvm_gnn_cost.cli.outcome import console, exit_codes, json_result, print_left_out
from tvm_gnn_cost.cli.tpugraphs.options import ModelsOption, PermutationsOption, RootArgument, model_paths


def evaluate(
    root: RootArgument,
    model: ModelsOption,
    split: Annotated[str, typer.Option(help="Split to rank; its runtimes must be known.")] = "valid",
    permutations: PermutationsOption = 10,
    json: JsonOption = None,
) -> None:
    """Ranks graphs with known runtimes and prints Kendall's tau, slowdowns and the competition's score."""
    from tvm_gnn_cost.cli.display import Display
    from tvm_gnn_cost.progress import Stage

    with exit_codes(), json_result(json) as write:
        with Display("graphs") as display:
            display(Stage("loading"))
            from tvm_gnn_cost import tpugraphs, xla_cpu

            evaluation = tpugraphs.evaluate(
                root,
                model_paths(model),
                split=split,
                permutations=permutations,
                find_kernels=xla_cpu.find_kernels,
                progress=display,
            )
        print_left_out(evaluation.left_out)
        for name, mean in evaluation.collections.items():
            graphs = evaluation.graphs[name]
            table = Table(title=f"{name}, {len(graphs)} graphs", title_justify="left")
            table.add_column("graph", overflow="fold")
            for heading in mean:
                table.add_column(heading, justify="right")
            for graph, metrics in (*graphs.items(), ("mean", mean)):
                table.add_row(graph, *(f"{value:.3f}" for value in metrics.values()))
            console.print(table)
            if evaluation.trained_on[name]:
                names = ", ".join(evaluation.trained_on[name])
                console.print(f"the models were trained on some of these: {names}", soft_wrap=True)
        console.print(f"score of {len(evaluation.collections)} collections: {evaluation.score:.4f}")
        write(asdict(evaluation))
