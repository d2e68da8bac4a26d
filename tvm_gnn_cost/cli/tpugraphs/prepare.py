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
    root: Annotated[Path, typer.Argument(help="The folder that contains npz or npz_all, as published.")],
    folder: Annotated[Path, typer.Argument(help="Folder of the prepared graphs; an existing one is resumed.")],
    collection: Annotated[
        list[str] | None, typer.Option(help="One of the five collections; may be repeated. [default: all in ROOT]")
    ] = None,
    prune: Annotated[bool, typer.Option(help="Keep only configurable nodes and their neighbours.")] = True,
    kernels: Annotated[
        bool,
        typer.Option(
            "--kernels", help="Also derive the kernels that XLA compiles for each layout on a CPU, for kernel-costs."
        ),
    ] = False,
    json: JsonOption = None,
) -> None:
    """Prunes graphs, drops duplicate configurations and packs the rest for training.

    Files that cannot be read are reported and skipped.
    """
    from tvm_gnn_cost.cli.display import Display

    with exit_codes(f"run the same command to resume from {folder}"), json_result(json) as write:
        from tvm_gnn_cost import tpugraphs, xla_cpu

        find_kernels = xla_cpu.find_kernels if kernels else None
        with Display("graphs") as display:
            prepared = tpugraphs.prepare(
                root, folder, collection or None, prunes=prune, find_kernels=find_kernels, progress=display
            )
        table = Table(title=f"prepared in {folder}", title_justify="left")
        for heading in ("collection", "graphs", "nodes", "kept", "configs", "kept", "MiB", "kept", "seconds"):
            table.add_column(heading, justify="left" if heading == "collection" else "right")
        for name, saved in prepared.collections.items():
            sizes = [saved.graphs, saved.nodes, saved.kept_nodes, saved.configs, saved.kept_configs]
            mebibytes = [f"{size / 2**20:.1f}" for size in (saved.bytes, saved.kept_bytes)]
            table.add_row(name, *map(str, sizes), *mebibytes, f"{saved.seconds:.1f}")
        console.print(table)
        print_left_out(prepared.left_out)
        write(asdict(prepared))
