"""``tvm-gnn-cost evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tvm_gnn_cost.cli.options import HardwareOption, JsonOption
from tvm_gnn_cost.cli.outcome import console, exit_codes, json_result, print_left_out


def evaluate(
    store: Annotated[Path, typer.Argument(help="A graph store, see 'extract', or a folder of measure records.")],
    model: Annotated[
        list[str],
        typer.Option(
            "--model",
            help="Path of a checkpoint or XGBoost file, gnn, random, constant or node-count; may be repeated.",
        ),
    ],
    network: Annotated[
        list[str] | None,
        typer.Option(
            "--network",
            help="Evaluate on this network's tasks; may be repeated. [default: the test networks, or the only one]",
        ),
    ] = None,
    hardware: HardwareOption = None,
    json: JsonOption = None,
) -> None:
    """Ranks measured programs with each model and prints pairwise accuracy, Kendall's tau, top-k and other metrics.

    A folder in TenSet's layout or a MetaSchedule database is extracted first, without keeping the graphs; to evaluate
    it repeatedly, extract it to a store. Databases of TVM 0.14 to 0.19 are read in the environment of make
    auto-scheduler.
    """
    from tvm_gnn_cost.cli.display import Display
    from tvm_gnn_cost.files import check_input_file, check_input_folder
    from tvm_gnn_cost.progress import Stage
    from tvm_gnn_cost.tuning.arguments import TRIVIAL_MODELS

    with exit_codes(), json_result(json) as write:
        check_input_folder(store)
        for name in model:
            if name not in ("gnn", *TRIVIAL_MODELS):
                check_input_file(Path(name))
        with Display("programs") as display:
            display(Stage("loading"))
            import tvm_gnn_cost
            from tvm_gnn_cost.evaluation.compare import summarise, table

            done = tvm_gnn_cost.evaluate(store, model, networks=network or (), hardware=hardware, progress=display)
        print_left_out(done.problems)
        for name, seen in done.trained_on.items():
            if seen:
                warning = (
                    f"warning: {name} was trained on {', '.join(seen)}; these figures say little about other networks"
                )
                console.print(warning, soft_wrap=True)
        summaries = {name: summarise([evaluation.metrics]) for name, evaluation in done.models.items()}
        console.print(table(", ".join(done.networks), summaries))
        write(
            {
                "networks": list(done.networks),
                "left_out": len(done.problems),
                "trained_on": done.trained_on,
                "models": {name: evaluation.metrics for name, evaluation in done.models.items()},
                "tasks": {
                    name: [{"task": t.task, "programs": t.programs, **t.metrics} for t in evaluation.tasks]
                    for name, evaluation in done.models.items()
                },
            }
        )
