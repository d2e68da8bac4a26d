"""``tvm-gnn-cost collect``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tvm_gnn_cost.cli.options import JsonOption, KeyOption, SchedulerOption, TargetOption, TrackerOption
from tvm_gnn_cost.cli.outcome import exit_codes, json_result


def collect(
    workloads: Annotated[
        list[str],
        typer.Argument(
            help="Names of workloads (resnet-18, dense/0, ...), or the groups training, held-out and layers."
        ),
    ],
    folder: Annotated[Path, typer.Argument(help="Where the collection is kept; the same one resumes.")],
    random: Annotated[
        int, typer.Option(min=0, max=1_000_000, help="Random samples of the design space, for each task.")
    ] = 12,
    guided: Annotated[
        int, typer.Option(min=0, max=1_000_000, help="Samples near the fastest ones so far, for each task.")
    ] = 8,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="Of the samples.")] = 0,
    patience: Annotated[
        float,
        typer.Option(
            min=0, max=1e6, help="Seconds for which a batch is measured again while other processes are busy."
        ),
    ] = 20,
    scheduler: Annotated[
        SchedulerOption,
        typer.Option(help="Whose programs; auto-scheduler needs a TVM up to 0.19 (make auto-scheduler)."),
    ] = SchedulerOption.meta_schedule,
    hardware: Annotated[
        str, typer.Option(help="For auto-scheduler: the name of this machine's folder of measure records.")
    ] = "cpu",
    tracker: TrackerOption = "",
    key: KeyOption = "",
    target: TargetOption = "",
    json: JsonOption = None,
) -> None:
    """Measures programs of many tasks, on this machine or on others, as data to train a cost model on.

    The folder becomes a MetaSchedule database with a card beside it, or a folder in TenSet's layout. A program that
    fails to build or to run is recorded as failed. Ctrl-C is safe at any time: the same command goes on where it
    stopped.
    """
    from tvm_gnn_cost.cli.display import Display
    from tvm_gnn_cost.progress import Note, Stage

    with exit_codes(f"run the same command to go on from {folder}"), json_result(json) as write:
        with Display("tasks") as display:
            display(Stage("loading TVM"))
            import tvm_gnn_cost

            done = tvm_gnn_cost.collect(
                workloads,
                folder,
                random=random,
                guided=guided,
                seed=seed,
                patience_s=patience,
                scheduler=scheduler.value,
                hardware=hardware,
                tracker=tracker,
                key=key,
                target=target,
                progress=display,
            )
            now = done.measured_now + done.failed_now
            display(Note(f"{folder}: {done.programs} programs, {done.failed} failed; {now} of them measured now"))
        counts = {"tasks": done.tasks, "measured": done.measured_now, "failed": done.failed_now}
        write({"folder": str(folder), **counts})
