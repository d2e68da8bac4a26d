"""How a command ends: its exit code, one sentence for a user's mistake, and its JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from tvm_gnn_cost.which_tvm import WrongTVM, need

#: For progress and tables; what a script reads goes to stdout. A stream of its own, because a search sends what
#: TVM prints to stderr into a file.
console = Console(
    file=os.fdopen(os.dup(2), "w", encoding=sys.stderr.encoding, errors="replace"),
    # DDP runs the whole command once more for each further device: one of them speaks.
    quiet=os.environ.get("LOCAL_RANK", "0") != "0",
)

JsonOption = Annotated[
    Path | None,
    typer.Option("--json", metavar="PATH", help="Write the result as JSON to this file; - is stdout, for it alone."),
]


class SchedulerOption(StrEnum):
    """What ``--scheduler`` takes."""

    meta_schedule = "meta-schedule"
    auto_scheduler = "auto-scheduler"


HardwareOption = Annotated[
    str | None,
    typer.Option(help="In TenSet's layout, the folder of measure_records; not needed where there is only one."),
]


@contextmanager
def exit_codes(how_to_resume: str = "") -> Iterator[None]:
    """Turns what goes wrong inside into one sentence on stderr and an exit code.

    1 for a RuntimeError (the work failed), 2 for a ValueError or OSError (bad input), 130 for Ctrl-C. Anything else
    is a bug and keeps its traceback.
    """
    try:
        yield
    except KeyboardInterrupt:
        console.print(f"interrupted; {how_to_resume}" if how_to_resume else "interrupted", markup=False)
        raise typer.Exit(130) from None
    except ImportError as error:
        if not isinstance(error, WrongTVM) and (error.name or "").partition(".")[0] != "tvm":
            raise
        console.print(f"failed: {_wrong_tvm(error)}", markup=False, soft_wrap=True)
        raise typer.Exit(1) from None
    except (ValueError, OSError) as error:
        console.print(f"error: {error}", markup=False, soft_wrap=True)
        raise typer.Exit(2) from None
    except RuntimeError as error:
        console.print(f"failed: {error}", markup=False, soft_wrap=True)
        raise typer.Exit(1) from None


def _wrong_tvm(error: ImportError) -> ImportError:
    """What is said of a missing part of TVM; all that is not of Ansor needs today's."""
    try:
        need("s_tir")
    except WrongTVM as wrong:
        return error if isinstance(error, WrongTVM) else wrong
    return error


@contextmanager
def json_alone(path: Path | None) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Writes a command's result as JSON.

    Where that goes to stdout, whatever else is printed meanwhile, by C++ too, goes to stderr.
    Yields the function that writes the object; it does nothing where there is no ``path``.
    """
    if path is None or console.quiet:
        yield lambda _result: None
        return
    if str(path) != "-":
        # Found out now and not after hours of work.
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        yield lambda result: _write_file(path, result)
        return
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)

    def write(result: dict[str, Any]) -> None:
        os.write(stdout, (json.dumps(result) + "\n").encode())

    try:
        yield write
    finally:
        sys.stdout.flush()
        os.dup2(stdout, 1)
        os.close(stdout)


def print_left_out(problems: Sequence[object]) -> None:
    """Names what was left out, the first twenty of it."""
    for problem in problems[:20]:
        console.print(f"left out: {problem}", markup=False, soft_wrap=True)
    if len(problems) > 20:
        console.print(f"and {len(problems) - 20} more")


def _write_file(path: Path, result: dict[str, Any]) -> None:
    path.write_text(json.dumps(result, indent=1) + "\n")
