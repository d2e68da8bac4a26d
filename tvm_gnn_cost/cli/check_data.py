"""``tvm-gnn-cost check-data``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from tvm_gnn_cost.cli.options import JsonOption
from tvm_gnn_cost.cli.outcome import console, exit_codes, json_result


def check_data(
    folder: Annotated[Path, typer.Argument(help="What 'collect' wrote with MetaSchedule.")],
    limit: Annotated[
        float, typer.Option(min=0, help="Coefficient of variation of the repeats above which a task is listed.")
    ] = 0.1,
    drop: Annotated[
        bool, typer.Option("--drop", help="Remove the programs of these tasks; 'collect' measures them again.")
    ] = False,
    json: JsonOption = None,
) -> None:
    """Lists the tasks of a collection whose repeated measurements disagree, because another process ran meanwhile."""
    from tvm_gnn_cost.datasets.check_data import check_data
    from tvm_gnn_cost.files import check_input_folder

    with exit_codes(), json_result(json) as write:
        check_input_folder(folder)
        found = check_data(folder, limit, drop=drop)
        for task, value in found.noisy:
            console.print(f"{value:.3f}  {task}", soft_wrap=True)
        console.print(
            f"{len(found.noisy)} of {found.tasks} tasks above {limit:g}, the coefficient of variation of the repeats; "
            f"{found.dropped} programs removed"
        )
        write({"folder": str(folder), **asdict(found)})
