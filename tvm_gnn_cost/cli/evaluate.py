"""``tvm-gnn-cost evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tvm_gnn_cost.cli.outcome import JsonOption, console, exit_codes, json_alone


def evaluate(
    store: Annotated[Path, typer.Argument(help="A graph store, see 'extract'.")],
    model: Annotated[
        list[str],
        typer.Option("--model", help="A checkpoint's path, xgb:PATH, random, constant or node-count; repeat it."),
    ],
    network: Annotated[
        list[str] | None,
        typer.Option("--network", help="Evaluate on this network's tasks; repeat it. [default: the test networks]"),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Ranks the store's programs with each model and prints how well: TenSet's top-k score and others, by network."""
    with exit_codes(), json_alone(json) as write:
        from tvm_gnn_cost.datasets.store import GraphStore
        from tvm_gnn_cost.evaluation.compare import compare, model_by_name, summarise, table
        from tvm_gnn_cost.networks.catalogue import HELD_OUT

        networks = network or list(HELD_OUT)
        models = {name: model_by_name(name) for name in model}
        programs = GraphStore(store).load(with_features=any(name.startswith("xgb:") for name in model))
        found = compare(models, programs, networks)
        summaries = {name: summarise([evaluation.metrics]) for name, evaluation in found.items()}
        console.print(table(", ".join(networks), summaries))
        write(
            {
                "networks": networks,
                "models": {name: evaluation.metrics for name, evaluation in found.items()},
                "tasks": {
                    name: [{"task": t.task, "programs": t.programs, **t.metrics} for t in evaluation.tasks]
                    for name, evaluation in found.items()
                },
            }
        )
