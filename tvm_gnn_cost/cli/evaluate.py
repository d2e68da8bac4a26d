"""``tvm-gnn-cost evaluate``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tvm_gnn_cost.cli.outcome import HardwareOption, JsonOption, console, exit_codes, json_alone, print_left_out

if TYPE_CHECKING:
    from tvm_gnn_cost.datasets.records import Problem


def evaluate(
    store: Annotated[Path, typer.Argument(help="A graph store, see 'extract', or a folder in TenSet's layout.")],
    model: Annotated[
        list[str],
        typer.Option("--model", help="A checkpoint's path, xgb:PATH, random, constant or node-count; repeat it."),
    ],
    network: Annotated[
        list[str] | None,
        typer.Option("--network", help="Evaluate on this network's tasks; repeat it. [default: the test networks]"),
    ] = None,
    hardware: HardwareOption = None,
    json: JsonOption = None,
) -> None:
    """Ranks measured programs with each model and prints how well: TenSet's top-k score and others, by network.

    A folder in TenSet's layout is extracted first, for this once; extract it to a store to use it again.
    """
    from tvm_gnn_cost.cli.display import StepDisplay

    with exit_codes(), json_alone(json) as write, TemporaryDirectory() as scratch:
        with StepDisplay("programs") as display:
            display.status("loading")
            from tvm_gnn_cost.datasets.store import GraphStore
            from tvm_gnn_cost.datasets.tenset import is_tenset
            from tvm_gnn_cost.evaluation.compare import Evaluation, compare, detail_of, model_by_name, summarise, table
            from tvm_gnn_cost.networks.catalogue import networks_to_test

            with_features = any(name.startswith("xgb:") for name in model)
            details = {name: detail_of(name) for name in model}
            problems: Sequence[Problem] = ()
            if is_tenset(store):
                from tvm_gnn_cost.datasets.extract_tenset import extract_tenset

                programs = {}
                options: Any = {"hardware": hardware, "per_store_features": with_features, "progress": display}
                for detail in set(details.values()):
                    made = GraphStore(Path(scratch) / detail)
                    problems = extract_tenset(store, made, detail=detail, **options).problems
                    programs[detail] = made.load(with_features=with_features)
            else:
                programs = dict.fromkeys(details.values(), GraphStore(store).load(with_features=with_features))
        print_left_out(problems)
        known = next(iter(programs.values())).networks
        networks = network or networks_to_test(known)
        found: dict[str, Evaluation] = {}
        for name in model:
            found |= compare({name: model_by_name(name)}, programs[details[name]], networks)
        summaries = {name: summarise([evaluation.metrics]) for name, evaluation in found.items()}
        console.print(table(", ".join(networks), summaries))
        write(
            {
                "networks": networks,
                "left_out": len(problems),
                "models": {name: evaluation.metrics for name, evaluation in found.items()},
                "tasks": {
                    name: [{"task": t.task, "programs": t.programs, **t.metrics} for t in evaluation.tasks]
                    for name, evaluation in found.items()
                },
            }
        )
