"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tvm_gnn_cost.errors import InputError


class SchedulerName(StrEnum):
    """Values of ``--scheduler``."""

    meta_schedule = "meta-schedule"
    auto_scheduler = "auto-scheduler"


SchedulerOption = Annotated[
    SchedulerName | None,
    typer.Option(
        help="TVM's auto-scheduler; auto-scheduler needs a TVM up to 0.19 (make auto-scheduler). "
        "[default: the scheduler of the installed TVM]"
    ),
]
TrackerOption = Annotated[str, typer.Option(metavar="HOST:PORT", help="RPC tracker whose machines run the programs.")]
KeyOption = Annotated[str, typer.Option(help="Key of these machines.")]
TargetOption = Annotated[
    str, typer.Option(help="Target of these machines, as JSON or a tag. [default: the target of this machine]")
]
JsonOption = Annotated[
    Path | None,
    typer.Option("--json", metavar="PATH", help="Write the result as JSON to this file; - for stdout."),
]

HardwareOption = Annotated[
    str | None,
    typer.Option(help="With TenSet's layout, the subfolder of measure_records; optional if there is only one."),
]

StoreArgument = Annotated[Path, typer.Argument(help="Graph store, see 'extract'.")]


def shapes_by_name(options: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Parses options ``--shape NAME=1,3,224,224``.

    Raises:
        InputError: an option is malformed, or a name occurs twice.
    """
    result: dict[str, tuple[int, ...]] = {}
    for option in options:
        name, equals, sizes = option.rpartition("=")
        parts = [part.strip() for part in sizes.split(",")]
        # Python refuses to parse integers of several thousand digits.
        if not equals or name in result or not all(part.isdecimal() and len(part) < 20 for part in parts):
            raise InputError(f"--shape {option}: expected NAME=1,3,224,224, once per input")
        result[name] = tuple(int(part) for part in parts)
    return result
