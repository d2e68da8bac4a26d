"""``tvm-gnn-cost extract``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tvm_gnn_cost.cli.options import HardwareOption, JsonOption
from tvm_gnn_cost.cli.outcome import console, exit_codes, json_result, print_left_out


class DetailOption(StrEnum):
    """What ``--detail`` takes."""

    tree = "tree"
    statements = "statements"


def extract(
    collection: Annotated[
        Path, typer.Argument(help="A MetaSchedule database's folder (collect and tune write one), or TenSet's layout.")
    ],
    store: Annotated[Path, typer.Argument(help="The graph store's folder; the same one resumes.")],
    detail: Annotated[
        DetailOption, typer.Option(help="statements is what the gnn preset reads, tree what tpgnn reads.")
    ] = DetailOption.statements,
    features: Annotated[bool, typer.Option(help="Also TVM's own features, which the XGBoost baseline needs.")] = True,
    hardware: HardwareOption = None,
    dask: Annotated[
        str,
        typer.Option(metavar="ADDRESS", help="A Dask scheduler, tcp://HOST:8786, whose workers extract instead."),
    ] = "",
    json: JsonOption = None,
) -> None:
    """Turns measured programs into graphs, in a store that train and evaluate read.

    Broken lines and records that can't be replayed are counted, named and left out.
    """
    from tvm_gnn_cost.cli.display import Display
    from tvm_gnn_cost.files import check_folder, check_input_folder
    from tvm_gnn_cost.progress import Stage

    with exit_codes(f"run the same command to go on from {store}"), json_result(json) as write:
        check_input_folder(collection)
        check_folder(store)
        with Display("programs") as display:
            display(Stage("loading TVM"))
            import tvm_gnn_cost

            done = tvm_gnn_cost.extract(
                collection,
                store,
                detail=detail.value,
                features=features,
                hardware=hardware,
                dask=dask,
                progress=display,
            )
        print_left_out(done.problems)
        console.print(f"{done.added} programs added to {store}, {done.known} were there, {len(done.problems)} left out")
        write({"store": str(store), "added": done.added, "known": done.known, "left_out": len(done.problems)})
