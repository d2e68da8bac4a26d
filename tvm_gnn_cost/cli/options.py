"""Options that several commands have."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer


class SchedulerOption(StrEnum):
    """What ``--scheduler`` takes."""

    meta_schedule = "meta-schedule"
    auto_scheduler = "auto-scheduler"


JsonOption = Annotated[
    Path | None,
    typer.Option("--json", metavar="PATH", help="Write the result as JSON to this file; - prints it to stdout."),
]

HardwareOption = Annotated[
    str | None,
    typer.Option(help="In TenSet's layout, the folder of measure_records; not needed where there is only one."),
]

StoreArgument = Annotated[Path, typer.Argument(help="A graph store, see 'extract'.")]
