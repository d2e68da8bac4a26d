"""``tvm-gnn-cost tpugraphs rank``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tvm_gnn_cost.cli.options import JsonOption
from tvm_gnn_cost.cli.outcome import console, exit_codes, json_result, print_left_out
from tvm_gnn_cost.cli.tpugraphs.options import ModelsOption, PermutationsOption, RootArgument, model_paths


def rank(
    root: RootArgument,
    table: Annotated[Path, typer.Argument(help="The competition's CSV file to write.")],
    model: ModelsOption,
    split: Annotated[str, typer.Option(help="Split to rank.")] = "test",
    permutations: PermutationsOption = 10,
    json: JsonOption = None,
) -> None:
    """Ranks all configurations of the graphs of one or several collections and writes the competition's CSV file."""
    from tvm_gnn_cost.cli.display import Display
    from tvm_gnn_cost.progress import Stage

    with exit_codes(), json_result(json) as write:
        with Display("graphs") as display:
            display(Stage("loading"))
            from tvm_gnn_cost import tpugraphs, xla_cpu

            ranking = tpugraphs.rank(
                root,
                model_paths(model),
                split=split,
                permutations=permutations,
                find_kernels=xla_cpu.find_kernels,
                table=table,
                progress=display,
            )
        print_left_out(ranking.left_out)
        console.print(f"{table}: {ranking}", soft_wrap=True)
        write({"table": str(table), "graphs": ranking.count, "left_out": ranking.left_out})
