"""``tvm-gnn-cost extract``."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from tvm_gnn_cost.cli.outcome import HardwareOption, JsonOption, console, exit_codes, json_alone, print_left_out


class DetailOption(StrEnum):
    """What ``--detail`` takes."""

    statements = "statements"
    tree = "tree"


def extract(
    collection: Annotated[
        Path, typer.Argument(help="A MetaSchedule database's folder (what collect or tune wrote), or TenSet's layout.")
    ],
    store: Annotated[Path, typer.Argument(help="The graph store's folder; the same one resumes.")],
    detail: Annotated[
        DetailOption, typer.Option(help="statements is what the gnn preset reads, tree what tpgnn reads.")
    ] = DetailOption.statements,
    features: Annotated[bool, typer.Option(help="Also TVM's own features, which the XGBoost baseline needs.")] = True,
    hardware: HardwareOption = None,
    json: JsonOption = None,
) -> None:
    """Turns measured programs into graphs, in a store that train and evaluate read.

    Broken lines and records that can't be replayed are counted, named and left out.
    """
    from tvm_gnn_cost.cli.display import StepDisplay

    with exit_codes(f"run the same command to go on from {store}"), json_alone(json) as write:
        with StepDisplay("programs") as display:
            display.status("loading TVM")
            from tvm_gnn_cost.datasets.store import GraphStore
            from tvm_gnn_cost.datasets.tenset import is_tenset

            options: Any = {"detail": detail.value, "per_store_features": features, "progress": display}
            if is_tenset(collection):
                from tvm_gnn_cost.datasets.extract_tenset import extract_tenset

                done = extract_tenset(collection, GraphStore(store), hardware=hardware, **options)
            else:
                from tvm_gnn_cost.datasets.extract import extract_collection

                done = extract_collection(collection, GraphStore(store), **options)
        print_left_out(done.problems)
        console.print(f"{done.added} programs added to {store}, {done.known} were there, {len(done.problems)} left out")
        write({"store": str(store), "added": done.added, "known": done.known, "left_out": len(done.problems)})
