"""Renders progress events, as a live bar or as lines without a terminal, and tables."""

from __future__ import annotations

import math
import time
from typing import Self

from rich import box
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar
from rich.table import Table
from rich.text import Text

from tvm_gnn_cost.cli.outcome import console
from tvm_gnn_cost.progress import (
    Advanced,
    EpochFinished,
    Event,
    Note,
    ProgramsMeasured,
    Stage,
    Step,
    TaskFinished,
    TasksFound,
    TrialsMeasured,
)
from tvm_gnn_cost.tuning.report import duration, latency, tables
from tvm_gnn_cost.tuning.result import TuneResult

#: Without a terminal, minimum number of seconds between lines.
_SECONDS_A_LINE = 5.0


class Display:
    """A progress bar with elapsed time and the current step; pass it as ``progress``.

    Args:
        unit: The unit that the bar counts.
        total: Their total number, if known.
    """

    def __init__(self, unit: str, total: int | None = None) -> None:
        self.unit = unit
        self.start = time.monotonic()
        columns = (SpinnerColumn(), BarColumn(24), MofNCompleteColumn(), TextColumn("{task.description}", markup=False))
        self.bars = Bar(
            *columns, TimeElapsedColumn(), TextColumn("{task.fields[doing]}", markup=False), console=console
        )
        self.bar = self.bars.add_task(unit, total=total, doing="")
        self.live = Live(self.bars, console=console, refresh_per_second=4, transient=True)
        self.tasks = self.finished_tasks = self.valid = self.failed = 0
        self.first: tuple[float, int] | None = None
        self.last_line = -math.inf

    def __enter__(self) -> Self:
        if console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.live.stop()

    def __call__(self, event: Event) -> None:
        """Renders an event."""
        match event:
            case Stage(text):
                self._stage(text)
            case Step(text):
                self.bars.update(self.bar, doing=text)
            case Note(text):
                self.note(text)
            case Advanced(done, total):
                self._advanced(done, total)
            case TasksFound(workload, new):
                self.tasks += new
                self.bars.update(self.bar, total=self.tasks)
                self._stage(f"{workload} has {new} new tasks")
            case ProgramsMeasured(_, valid, failed):
                self.valid += valid
                self.failed += failed
                counted = f"{self.unit}, {self.valid} measured, {self.failed} failed"
                self.bars.update(self.bar, description=counted)
            case TaskFinished(task):
                self.finished_tasks += 1
                self.bars.update(self.bar, completed=self.finished_tasks)
                self._stage(f"{task} is done ({self.finished_tasks} of {self.tasks} tasks)")
            case TrialsMeasured(task, trials, budget):
                best = f"best {latency(event.latency)}"
                self.bars.update(self.bar, completed=trials, total=budget, description=best)
                if not console.is_terminal:
                    self.note(f"{trials if budget is None else f'{trials}/{budget}'} trials  {best}  {task}")
            case EpochFinished(number, metrics):
                self.bars.update(self.bar, completed=number)
                self._stage(f"epoch {number}, validation error {metrics['validation_error']:.3f}")

    def note(self, text: str) -> None:
        """Prints a permanent line."""
        seconds = duration(time.monotonic() - self.start)
        console.print(Text(f"{seconds:>7}  {text}"), soft_wrap=True)

    def total(self, items: int) -> None:
        """Sets the total number of items."""
        self.bars.update(self.bar, total=items)

    def _stage(self, text: str) -> None:
        self.bars.update(self.bar, doing=text)
        if not console.is_terminal:
            self.note(text)

    def _advanced(self, done: int, total: int) -> None:
        """Advances the bar and shows the rate since the first call, without items of an earlier run."""
        self.bars.update(self.bar, completed=done, total=total)
        now = time.monotonic()
        since, before = self.first = self.first or (now, done)
        if not console.is_terminal and now < self.last_line + _SECONDS_A_LINE and done < total:
            return
        self.last_line = now
        rate = f", {(done - before) / (now - since):.0f} per second" if done > before and now > since else ""
        self._stage(f"{done} of {total} {self.unit}{rate}")


def print_tuning(result: TuneResult) -> None:
    """Prints the tables of a tuning run to the console."""
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
            # In a narrow terminal, only names wrap.
            table.add_column(column, justify="right" if number else "left", overflow="fold", no_wrap=number > 0)
        for row in content.rows:
            table.add_row(*map(Text, row))
        console.print(table)
