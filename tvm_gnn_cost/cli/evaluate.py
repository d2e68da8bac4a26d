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
            from tvm_gnn_cost.datasets.tenset import is_tenset, read_tenset
            from tvm_gnn_cost.evaluation.compare import Evaluation, compare, model_by_name, summarise, table
            from tvm_gnn_cost.networks.catalogue import networks_to_test

            models = {name: model_by_name(name) for name in model}
            details = {one.detail for one in models.values()}
            with_features = any(name.startswith("xgb:") for name in model)
            problems: Sequence[Problem] = ()
            if is_tenset(store):
                from tvm_gnn_cost.datasets.extract_tenset import extract_tenset

                # Found out now and not after the extraction.
                networks_to_test(read_tenset(store, hardware).networks, network or ())
                programs = {}
                options: Any = {"hardware": hardware, "per_store_features": with_features, "progress": display}
                for detail in details:
                    made = GraphStore(Path(scratch) / detail)
                    done = extract_tenset(store, made, detail=detail, **options)
                    problems = done.problems
                    if not done.added:
                        print_left_out(problems)
                        raise ValueError(f"none of the {len(problems) + done.known} records of {store} could be read")
                    programs[detail] = made.load(with_features=with_features)
            elif hardware is not None:
                raise ValueError(f"--hardware is for a folder in TenSet's layout, and {store} is none; leave it out")
            else:
                programs = dict.fromkeys(details, GraphStore(store).load(with_features=with_features))
        print_left_out(problems)
        networks = networks_to_test(next(iter(programs.values())).networks, network or ())
        trained_on = {name: [one for one in networks if one in models[name].networks] for name in model}
        for name, seen in trained_on.items():
            if seen:
                warning = f"warning: {name} was trained on {', '.join(seen)}; that says little about other networks"
                console.print(warning, markup=False, soft_wrap=True)
        found: dict[str, Evaluation] = {}
        for name, one in models.items():
            found |= compare({name: one.predict}, programs[one.detail], networks)
        summaries = {name: summarise([evaluation.metrics]) for name, evaluation in found.items()}
        console.print(table(", ".join(networks), summaries))
        write(
            {
                "networks": networks,
                "left_out": len(problems),
                "trained_on": trained_on,
                "models": {name: evaluation.metrics for name, evaluation in found.items()},
                "tasks": {
                    name: [{"task": t.task, "programs": t.programs, **t.metrics} for t in evaluation.tasks]
                    for name, evaluation in found.items()
                },
            }
        )
