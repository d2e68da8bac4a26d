"""``tvm-gnn-cost collect``."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Annotated

import typer

from tvm_gnn_cost.cli.outcome import JsonOption, SchedulerOption, exit_codes, json_alone
from tvm_gnn_cost.which_tvm import need


def collect(
    workloads: Annotated[
        list[str],
        typer.Argument(help="Names of workloads (resnet-18, dense/0, ...), or the groups training and held-out."),
    ],
    folder: Annotated[Path, typer.Argument(help="Where the collection is kept; the same one resumes.")],
    random: Annotated[int, typer.Option(min=0, help="Random samples of the design space, a task.")] = 12,
    guided: Annotated[int, typer.Option(min=0, help="Samples near the best ones measured so far, a task.")] = 8,
    seed: Annotated[int, typer.Option(min=0, help="Of the random samples.")] = 0,
    scheduler: Annotated[
        SchedulerOption, typer.Option(help="Whose programs; auto-scheduler needs a TVM up to 0.19 (make ansor).")
    ] = SchedulerOption.meta_schedule,
    hardware: Annotated[
        str, typer.Option(help="For auto-scheduler: the name of this machine's folder of measure records.")
    ] = "cpu",
    json: JsonOption = None,
) -> None:
    """Measures programs of many tasks on this machine, as data to train a cost model on.

    The folder becomes a MetaSchedule database with a card beside it, or one in TenSet's layout. A program that fails
    to build or run is recorded as failed. Ctrl-C is safe at any time: the same command goes on where it stopped.
    """
    from tvm_gnn_cost.cli.display import CollectDisplay

    with exit_codes(f"run the same command to go on from {folder}"), json_alone(json) as write:
        with CollectDisplay() as display:
            display.status("loading TVM")
            if scheduler is SchedulerOption.auto_scheduler:
                need("auto_scheduler")
                from tvm_gnn_cost.datasets.collect_tenset import Plan, collect_tenset
                from tvm_gnn_cost.networks import relay, te_operators

                names = _expand(workloads, relay.TRAINING, te_operators.KINDS, relay.HELD_OUT)
                collect_tenset(Plan(names, random, guided, seed), folder, hardware, display)
                display.note(f"{folder}: {display.valid} programs measured now, {display.failed} failed")
                write({"folder": str(folder), **display.counts()})
                return
            from tvm_gnn_cost.datasets import collect as collecting
            from tvm_gnn_cost.networks.catalogue import HELD_OUT, TRAINING
            from tvm_gnn_cost.networks.operators import KINDS

            names = _expand(workloads, TRAINING, KINDS, HELD_OUT)
            collecting.collect(collecting.Plan(names, random, guided, seed), folder, display)
        display.print_total(folder)
        write({"folder": str(folder), **display.counts()})


def _expand(
    workloads: Iterable[str], training: Iterable[str], kinds: Collection[str], held_out: Iterable[str]
) -> tuple[str, ...]:
    """The workloads with the groups' names replaced by their members."""
    single = (f"{kind}/{number}" for number in range(4) for kind in kinds)
    groups = {"training": (*training, *single), "held-out": (*held_out,)}
    return tuple(name for workload in workloads for name in groups.get(workload, (workload,)))
