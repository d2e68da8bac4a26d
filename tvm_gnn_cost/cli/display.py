"""What the commands show: live progress where there is a terminal, a line a step where there is none, and tables."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Self

from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from tvm_gnn_cost.cli.outcome import console
from tvm_gnn_cost.evaluation.report import duration, latency, tables
from tvm_gnn_cost.tuning.result import TuneResult


class _Display:
    """A bar, the best so far, the time, and below it what is being done."""

    def __init__(self, total: int | None, unit: str) -> None:
        self.unit = unit
        self.start = time.monotonic()
        columns = (SpinnerColumn(), BarColumn(24), MofNCompleteColumn(), TextColumn("{task.description}"))
        self.progress = Progress(*columns, TimeElapsedColumn(), TextColumn("{task.fields[doing]}"), console=console)
        self.bar = self.progress.add_task(unit, total=total, doing="")
        self.live = Live(self.progress, console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> Self:
        if console.is_terminal:
            self.live.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.live.stop()

    def status(self, text: str) -> None:
        """What is being done now."""
        self.progress.update(self.bar, doing=text)
        # Without a terminal only the long steps get a line; searching, building and running follow at each batch.
        if not console.is_terminal and ": " not in text:
            self.note(text)

    def note(self, text: str) -> None:
        """A line that stays."""
        seconds = duration(time.monotonic() - self.start)
        console.print(Text(f"{seconds:>7}  {text}"), soft_wrap=True)


class TuneDisplay(_Display):
    """Draws a tuning run; a ``tvm_gnn_cost.tuning.progress.Progress``."""

    def __init__(self, trials: int) -> None:
        super().__init__(trials, "trials")

    def measured(self, result: TuneResult, task: str) -> None:
        """The bar, and without a terminal a line, after each batch."""
        best = f"best {latency(result.latency)}, untuned {latency(result.untuned_latency)}"
        self.progress.update(self.bar, completed=result.trials, description=best)
        if not console.is_terminal:
            self.note(f"{result.trials}/{result.settings.trials} trials  {best}  {task}")


class CollectDisplay(_Display):
    """Draws a collection; a ``tvm_gnn_cost.datasets.collect.Progress``."""

    def __init__(self) -> None:
        super().__init__(None, "tasks")
        self.tasks = self.finished_tasks = self.valid = self.failed = 0

    def found(self, workload: str, new_tasks: int) -> None:
        """The tasks of a workload are known."""
        self.tasks += new_tasks
        self.progress.update(self.bar, total=self.tasks)
        self.status(f"{workload} has {new_tasks} new tasks")

    def measured(self, valid: int, failed: int) -> None:
        """Programs were measured."""
        self.valid += valid
        self.failed += failed
        self.progress.update(self.bar, description=f"tasks, {self.valid} measured, {self.failed} failed")

    def finished(self, task: str) -> None:
        """A task has all of its programs."""
        self.finished_tasks += 1
        self.progress.update(self.bar, completed=self.finished_tasks)
        self.status(f"{task} is done ({self.finished_tasks} of {self.tasks} tasks)")

    def counts(self) -> dict[str, int]:
        """What this run did."""
        return {"tasks": self.tasks, "measured": self.valid, "failed": self.failed}

    def print_total(self, folder: Path) -> None:
        """One closing line."""
        with (folder / "measurements.jsonl").open() as lines:
            failures = [json.loads(line)["failure"] is not None for line in lines]
        self.note(
            f"{folder}: {len(failures)} programs of {self.tasks} tasks, {sum(failures)} failed; "
            f"{self.valid + self.failed} of them measured now"
        )


class StepDisplay(_Display):
    """Draws an extraction or a training: steps done of a total."""

    def __init__(self, unit: str) -> None:
        super().__init__(None, unit)
        self.first: tuple[float, int] | None = None
        self.told = -math.inf

    def total(self, steps: int) -> None:
        """How many steps there are."""
        self.progress.update(self.bar, total=steps)

    def extracted(self, done: int, total: int) -> None:
        """So many are done, those of an earlier run among them; with the rate since the first call."""
        self.progress.update(self.bar, completed=done, total=total)
        now = time.monotonic()
        since, before = self.first = self.first or (now, done)
        # A line each 5 seconds where there is no terminal.
        if not console.is_terminal and now < self.told + 5 and done < total:
            return
        self.told = now
        rate = f", {(done - before) / (now - since):.0f} a second" if done > before and now > since else ""
        self.status(f"{done} of {total} {self.unit}{rate}")

    def epoch(self, number: int, metrics: dict[str, float]) -> None:
        """An epoch is over."""
        self.progress.update(self.bar, completed=number)
        self.status(f"epoch {number}, validation error {metrics['validation_error']:.3f}")


def print_tuning(result: TuneResult) -> None:
    """The tables of a tuning run."""
    for content in tables(result):
        table = Table(title=content.title, title_justify="left", caption=content.note, caption_justify="left")
        for number, column in enumerate(content.columns):
            table.add_column(column, justify="left" if number == 0 else "right", overflow="fold")
        for row in content.rows:
            table.add_row(*map(Text, row))
        console.print(table)
