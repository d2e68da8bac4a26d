"""Prints the tables of a tuning run."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from tvm_gnn_cost.cli.outcome import console
from tvm_gnn_cost.tuning.report import tables
from tvm_gnn_cost.tuning.result import TuneResult


def print_tuning(result: TuneResult) -> None:
    """Prints them to the console."""
    for content in tables(result):
        table = Table(title=content.title, title_justify="left", caption=content.note, caption_justify="left")
        for number, column in enumerate(content.columns):
            table.add_column(column, justify="left" if number == 0 else "right", overflow="fold")
        for row in content.rows:
            table.add_row(*map(Text, row))
        console.print(table)
