"""``tvm-gnn-cost import-log``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tvm_gnn_cost.cli.options import JsonOption, shapes_by_name
from tvm_gnn_cost.cli.outcome import console, exit_codes, json_result, print_left_out


def import_log(
    log: Annotated[Path, typer.Argument(help="A log of auto_scheduler: measure records, one a line.")],
    folder: Annotated[Path, typer.Argument(help="The folder in TenSet's layout; what it holds stays.")],
    network: Annotated[
        str, typer.Option(help="The network that was tuned: a name, an .onnx file or package.module:function.")
    ],
    shape: Annotated[
        list[str] | None,
        typer.Option("--shape", help="NAME=1,3,224,224: the shape of an input of open sizes; repeat it."),
    ] = None,
    hardware: Annotated[str, typer.Option(help="A name for the machine that measured.")] = "log",
    json: JsonOption = None,
) -> None:
    """Turns a plain log of auto_scheduler into a folder that extract and evaluate read (make auto-scheduler).

    The tasks are made again from the network and matched with the log's by their shapes and operators; what could not
    be matched is named and left out.
    """
    from tvm_gnn_cost.cli.display import Display
    from tvm_gnn_cost.files import check_folder, check_input_file
    from tvm_gnn_cost.importing.names import check_network
    from tvm_gnn_cost.progress import Stage

    with exit_codes(), json_result(json) as write:
        check_input_file(log)
        check_folder(folder)
        check_network(network)
        shapes = shapes_by_name(shape or ())
        with Display("tasks") as display:
            display(Stage("loading TVM"))
            import tvm_gnn_cost

            done = tvm_gnn_cost.import_log(log, folder, network, shapes=shapes, hardware=hardware, progress=display)
        print_left_out(done.problems)
        console.print(
            f"{done.records} records added to {folder}, of {done.tasks} of the network's {done.network_tasks} tasks; "
            f"{len(done.problems)} left out"
        )
        counts = {"records": done.records, "tasks": done.tasks, "network_tasks": done.network_tasks}
        write({"folder": str(folder), **counts, "left_out": len(done.problems)})
