"""``tvm-gnn-cost tpugraphs prepare``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from tvm_gnn_cost.cli.options import JsonOption
from tvm_gnn_cost.cli.outcome import console, exit_codes, json_result, print_left_out


def prepare(
    root: Annotated[Path, typer.Argument(help="The folder that holds npz or npz_all, as published.")],
    folder: Annotated[Path, typer.Argument(help="Where the prepared graphs go; the same folder resumes.")],
    collection: Annotated[
        list[str] | None, typer.Option(help="One of the five collections; repeat it. [default: all that are there]")
    ] = None,
    prune: Annotated[
        bool,
        typer.Option(help="Keep only configurable nodes and their neighbours; small graphs may keep all their nodes."),
    ] = True,
    kernels: Annotated[
        bool,
        typer.Option(
            "--kernels", help="Find the kernels of each layout too, for --model kernel-costs; it takes longer."
        ),
    ] = False,
    json: JsonOption = None,
) -> None:
    """Prunes graphs, drops equal configurations and packs the rest: training reads this, a fraction of the size.

    A file that can't be read is named and left out.
    """
    from tvm_gnn_cost.cli.display import Display

    with exit_codes(f"run the same command to go on from {folder}"), json_result(json) as write:
        from tvm_gnn_cost import tpugraphs

        with Display("graphs") as display:
            prepared = tpugraphs.prepare(
                root, folder, collection or None, prunes=prune, kernels=kernels, progress=display
            )
        table = Table(title=f"prepared in {folder}", title_justify="left")
        for heading in ("collection", "graphs", "nodes", "kept", "configs", "kept", "MiB", "kept", "seconds"):
            table.add_column(heading, justify="left" if heading == "collection" else "right")
        for name, one in prepared.collections.items():
            sizes = [one.graphs, one.nodes, one.kept_nodes, one.configs, one.kept_configs]
            mebibytes = [f"{size / 2**20:.1f}" for size in (one.bytes, one.kept_bytes)]
            table.add_row(name, *map(str, sizes), *mebibytes, f"{one.seconds:.1f}")
        console.print(table)
        print_left_out(prepared.left_out)
        write(asdict(prepared))
