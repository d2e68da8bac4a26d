"""``tvm-gnn-cost explain``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tvm_gnn_cost.cli.options import HardwareOption, JsonOption
from tvm_gnn_cost.cli.outcome import console, exit_codes, json_result

if TYPE_CHECKING:
    from tvm_gnn_cost.tuning.explain import ExplainResult

#: Minimum number of terminal columns to show two programs side by side.
_WIDE = 170


def explain(
    folder: Annotated[
        Path,
        typer.Argument(help="A work directory of tune, another MetaSchedule database, or a folder in TenSet's layout."),
    ],
    task: Annotated[str, typer.Option(help="Number of the task (1 is the slowest) or a part of its name.")] = "1",
    rank: Annotated[
        list[int] | None,
        typer.Option(
            "--rank",
            help="Rank of a program by latency: 1 is the fastest of its task, -1 the slowest; may be repeated. "
            "[default: 1 and -1]",
        ),
    ] = None,
    cost_model: Annotated[str, typer.Option(help="gnn (the shipped checkpoint), or the path of a checkpoint.")] = "gnn",
    hardware: HardwareOption = None,
    html: Annotated[Path | None, typer.Option(help="Write an HTML page with the programs side by side.")] = None,
    json: JsonOption = None,
) -> None:
    """Shows the predicted cost of measured programs, for each loop and store of their text.

    The columns are the share of the network's predicted cost, what the boosted trees add to the score for a store
    (higher is faster), and how many of the TopK poolings keep the node.
    """
    from tvm_gnn_cost.cli.display import Display
    from tvm_gnn_cost.files import check_file, check_input_folder
    from tvm_gnn_cost.progress import Note, Stage
    from tvm_gnn_cost.tuning.arguments import check_cost_model

    with exit_codes(), json_result(json) as write:
        check_input_folder(folder)
        check_cost_model(cost_model, ("gnn",))
        if html is not None:
            check_file(html)
        with Display("programs") as display:
            display(Stage("loading TVM"))
            import tvm_gnn_cost
            from tvm_gnn_cost.tuning.explain import write_page

            result = tvm_gnn_cost.explain(
                folder, task=task, ranks=rank or (1, -1), cost_model=cost_model, hardware=hardware, progress=display
            )
        _print(result)
        if html is not None:
            write_page(result, html)
            display(Note(f"page: {html}"))
        write(result.as_json())


def _print(result: ExplainResult) -> None:
    """Prints the programs, side by side if the terminal is wide enough."""
    from rich.columns import Columns
    from rich.table import Table
    from rich.text import Text

    tables = []
    for program in result.programs:
        title = (
            f"{result.task}, {program.rank} of {result.measured}: {1e3 * program.seconds:.4g} ms, throughput "
            f"{program.throughput:.2f} of the fastest program's, predicted {program.predicted:.2f}"
        )
        table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0), pad_edge=False)
        for column in ("cost", "trees", "kept"):
            table.add_column(column, justify="right", no_wrap=True, min_width=7)
        table.add_column("", no_wrap=True, overflow="ellipsis")
        for line in program.lines:
            cells = (
                "" if line.share is None else f"{100 * line.share:.1f} %",
                "" if line.trees is None else f"{line.trees:+.2f}",
                "" if line.kept is None else str(line.kept),
                line.text,
            )
            # Bold: expensive lines. Dim: nodes that no pooling keeps.
            style = "bold" if (line.share or 0.0) >= 0.1 else "dim" if line.kept == 0 else ""
            table.add_row(*(Text(cell, style=style) for cell in cells))
        tables.append(table)
    if console.width >= _WIDE and len(tables) > 1:
        console.print(Columns(tables, width=console.width // len(tables) - 2, equal=True))
        return
    for table in tables:
        console.print(table)
