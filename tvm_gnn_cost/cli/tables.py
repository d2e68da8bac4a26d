"""Prints the tables of a tuning run."""

from __future__ import annotations

from rich import box
from rich.table import Table
from rich.text import Text

from tvm_gnn_cost.cli.outcome import console
from tvm_gnn_cost.tuning.report import tables
from tvm_gnn_cost.tuning.result import TuneResult


def print_tuning(result: TuneResult) -> None:
    """Prints them to the console."""
    for content in tables(result):
        table = Table(
            title=content.title,
            title_justify="left",
            caption=content.note,
            caption_justify="left",
            box=box.SIMPLE_HEAD,
            padding=(0, 1, 0, 0),
            pad_edge=False,
        )
        for number, column in enumerate(content.columns):
            # In a narrow terminal only names are broken into lines: a broken number is hard to read.
            table.add_column(column, justify="right" if number else "left", overflow="fold", no_wrap=number > 0)
        for row in content.rows:
            table.add_row(*map(Text, row))
        console.print(table)
