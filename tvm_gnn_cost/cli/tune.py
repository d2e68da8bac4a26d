"""``tvm-gnn-cost tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tvm_gnn_cost.cli.options import JsonOption, SchedulerOption
from tvm_gnn_cost.cli.outcome import exit_codes, json_result


def tune(
    network: Annotated[
        str,
        typer.Option(
            help="resnet-18, mobilenet-v1, mobilenet-v2, inception-v3 or any other workload; for auto-scheduler "
            "resnet-18, mobilenet, inception-v3 or mlp."
        ),
    ] = "resnet-18",
    scheduler: Annotated[
        SchedulerOption,
        typer.Option(help="TVM's auto-scheduler; auto-scheduler needs a TVM up to 0.19 (make auto-scheduler)."),
    ] = SchedulerOption.meta_schedule,
    trials: Annotated[int, typer.Option(min=1, help="Programs to measure in all, over all of its tasks.")] = 576,
    cost_model: Annotated[
        str, typer.Option(help="gnn (the checkpoint that ships), xgb, random, or the path of a checkpoint.")
    ] = "gnn",
    work_dir: Annotated[
        Path | None,
        typer.Option(
            help="Where everything is kept; the same one resumes. [default: work/NETWORK-COST_MODEL, with "
            "auto-scheduler- before it for that]"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the search.")] = 0,
    batch: Annotated[int, typer.Option(min=1, help="Programs measured at a time.")] = 16,
    population: Annotated[int, typer.Option(min=8, help="Candidates that the evolutionary search keeps.")] = 128,
    json: JsonOption = None,
) -> None:
    """Tunes a network on this CPU, compares it end to end with the untuned one, and writes report.html.

    It measures TVM's default schedules, searches for better ones with MetaSchedule or Ansor and the cost model,
    compiles the network both ways, compares the outputs (with PyTorch's; with Ansor, with each other) and times both.
    Ctrl-C is safe at any time: the same command goes on where it stopped.
    """
    from tvm_gnn_cost.cli.display import Display
    from tvm_gnn_cost.cli.tables import print_tuning
    from tvm_gnn_cost.progress import Note, Stage
    from tvm_gnn_cost.tuning.report import write_report
    from tvm_gnn_cost.tuning.tune import default_work_dir

    folder = work_dir or default_work_dir(network, cost_model, scheduler.value)
    with exit_codes(f"run the same command to go on from {folder}"), json_result(json) as write:
        with Display("trials", trials) as display:
            display(Stage("loading TVM"))
            import tvm_gnn_cost

            result = tvm_gnn_cost.tune(
                network,
                trials,
                cost_model,
                folder,
                scheduler=scheduler.value,
                seed=seed,
                batch=batch,
                population=population,
                progress=display,
            )
        page = write_report(folder)
        print_tuning(result)
        display(Note(f"report: {page}"))
        write({"work_dir": str(folder), "report": str(page), **result.as_json()})
