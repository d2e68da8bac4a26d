"""Commands on networks: tune and report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tvm_gnn_cost.cli.options import JsonOption, KeyOption, SchedulerOption, TargetOption, TrackerOption, shapes_by_name
from tvm_gnn_cost.cli.outcome import console, exit_codes, json_result


def tune(
    network: Annotated[
        str,
        typer.Argument(
            help="An .onnx file, a .pt2 file of torch.export, package.module:function that returns an nn.Module and "
            "its example inputs, or a name: resnet-18, mobilenet-v1, mobilenet-v2, inception-v3 or any other workload; "
            "for auto-scheduler resnet-18, mobilenet, inception-v3 or mlp."
        ),
    ],
    shape: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=1,3,224,224", help="Shape of an input with dynamic dimensions; may be repeated."),
    ] = None,
    inputs: Annotated[
        Path | None,
        typer.Option(help="An .npz file of example inputs by name; missing ones are random. [default: all are random]"),
    ] = None,
    trusted: Annotated[
        bool, typer.Option("--trusted", help="Trust a .pt2 file: reading it can execute arbitrary code.")
    ] = False,
    scheduler: SchedulerOption = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            min=0, help="Minutes until the search ends; compiling and comparing follow. [default: 5 without --trials]"
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            min=0, help="Maximum number of programs to measure; 0 compiles the cost model's choices unmeasured."
        ),
    ] = None,
    cost_model: Annotated[
        str, typer.Option(help="gnn (the shipped checkpoint), xgb, random, mlp, or the path of a checkpoint.")
    ] = "gnn",
    work_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the run; an existing one is resumed. "
            "[default: work/NETWORK-COST_MODEL, or work/auto-scheduler-NETWORK-COST_MODEL]"
        ),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the search.")] = 0,
    batch_size: Annotated[int, typer.Option(min=1, help="Number of programs per measured batch.")] = 8,
    population_size: Annotated[int, typer.Option(min=8, help="Population size of the evolutionary search.")] = 64,
    compare: Annotated[
        bool,
        typer.Option(help="Also time PyTorch, torch.compile and the installed of ONNX Runtime, OpenVINO, MNN."),
    ] = True,
    tracker: TrackerOption = "",
    key: KeyOption = "",
    target: TargetOption = "",
    json: JsonOption = None,
) -> None:
    """Tunes a network for this CPU or other machines, and compares it with other engines.

    It searches for schedules with MetaSchedule or auto_scheduler and the cost model, compiles the network with the best
    ones to a library, and compares latency and outputs with TVM's default schedules and with those of PyTorch,
    torch.compile, ExecuTorch, ONNX Runtime, OpenVINO and MNN that are installed. The work directory
    then contains NETWORK.so, run.py, which runs it with TVM's runtime alone, and report.html. Ctrl-C is safe at any
    time: the same command resumes the search.
    """
    from tvm_gnn_cost.cli.display import Display, print_tuning
    from tvm_gnn_cost.files import check_input_file
    from tvm_gnn_cost.importing.names import check_network
    from tvm_gnn_cost.progress import Note, Stage
    from tvm_gnn_cost.tuning.arguments import check_cost_model, check_settings
    from tvm_gnn_cost.tuning.report import write_report

    with exit_codes():
        check_settings(trials, minutes, seed, batch_size, population_size)
        check_network(network)
        check_cost_model(cost_model)
        if inputs is not None:
            check_input_file(inputs)
        shapes = shapes_by_name(shape or [])
    from tvm_gnn_cost.importing.inputs import read_inputs
    from tvm_gnn_cost.schedulers import installed_name
    from tvm_gnn_cost.tuning.tune import default_work_dir

    folder = work_dir or default_work_dir(network, cost_model, scheduler or installed_name())
    with exit_codes(f"run the same command to resume {folder}"), json_result(json) as write:
        with Display("trials", trials) as display:
            display(Stage("loading TVM"))
            import tvm_gnn_cost

            result = tvm_gnn_cost.tune(
                network,
                read_inputs(inputs) if inputs is not None else None,
                trials,
                cost_model,
                folder,
                shapes=shapes,
                trusted=trusted,
                scheduler=scheduler,
                seed=seed,
                minutes=minutes,
                batch_size=batch_size,
                population_size=population_size,
                compare=compare,
                tracker=tracker,
                key=key,
                target=target,
                progress=display,
            )
        page = write_report(folder)
        print_tuning(result)
        display(Note(f"report: {page}"))
        display(Note(f"library: {folder / result.library}; python {folder / 'run.py'} runs it"))
        write({"work_dir": str(folder), "report": str(page), **result.as_json()})


def report(
    work_dir: Annotated[Path, typer.Argument(help="The work directory of a tuning run, finished or not.")],
    json: JsonOption = None,
) -> None:
    """Rewrites report.html of a tuning run and prints its tables, without measuring and without TVM."""
    from tvm_gnn_cost.cli.display import print_tuning
    from tvm_gnn_cost.tuning.report import write_report
    from tvm_gnn_cost.tuning.result import load_result

    with exit_codes(), json_result(json) as write:
        result = load_result(work_dir)
        page = write_report(work_dir)
        print_tuning(result)
        console.print(f"report: {page}", soft_wrap=True)
        write({"work_dir": str(work_dir), "report": str(page), **result.as_json()})
