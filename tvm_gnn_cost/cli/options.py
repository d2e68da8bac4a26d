"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tvm_gnn_cost.errors import InputError


class SchedulerOption(StrEnum):
    """What ``--scheduler`` takes."""

    meta_schedule = "meta-schedule"
    auto_scheduler = "auto-scheduler"


TrackerOption = Annotated[
    str, typer.Option(metavar="HOST:PORT", help="TVM's RPC tracker, whose machines run the programs.")
]
KeyOption = Annotated[str, typer.Option(help="The key of these machines.")]
TargetOption = Annotated[
    str, typer.Option(help="TVM's target of these machines, JSON or a tag; by default this machine's.")
]
JsonOption = Annotated[
    Path | None,
    typer.Option("--json", metavar="PATH", help="Write the result as JSON to this file; - prints it to stdout."),
]

HardwareOption = Annotated[
    str | None,
    typer.Option(help="In TenSet's layout, the folder of measure_records; not needed where there is only one."),
]

StoreArgument = Annotated[Path, typer.Argument(help="A graph store, see 'extract'.")]


def shapes_by_name(options: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """What the options ``--shape NAME=1,3,224,224`` say.

    Raises:
        InputError: one is of another form, or a name comes twice.
    """
    result: dict[str, tuple[int, ...]] = {}
    for option in options:
        name, equals, sizes = option.rpartition("=")
        parts = [part.strip() for part in sizes.split(",")]
        # Python refuses to read a number of some thousand digits.
        if not equals or name in result or not all(part.isdecimal() and len(part) < 20 for part in parts):
            raise InputError(f"--shape {option}: an input's shape is NAME=1,3,224,224, and each input has one")
        result[name] = tuple(int(part) for part in parts)
    return result
