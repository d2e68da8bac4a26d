"""How a command ends: its exit code, one sentence for a user's mistake, and its JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from rich.console import Console

#: For progress and tables; what a script reads goes to stdout. A stream of its own, because a search sends what
#: TVM prints to stderr into a file.
console = Console(
    file=os.fdopen(os.dup(2), "w", encoding=sys.stderr.encoding, errors="replace"),
    # DDP runs the whole command once more for each further device: one of them speaks.
    quiet=os.environ.get("LOCAL_RANK", "0") != "0",
)

JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")]


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
    except ModuleNotFoundError as error:
        if error.name != "tvm":
            raise
        console.print(r"failed: TVM is not installed; pip install 'tvm-gnn-cost\[tvm]'", soft_wrap=True)
        raise typer.Exit(1) from None
    except (ValueError, OSError) as error:
        console.print(f"error: {error}", markup=False, soft_wrap=True)
        raise typer.Exit(2) from None
    except RuntimeError as error:
        console.print(f"failed: {error}", markup=False, soft_wrap=True)
        raise typer.Exit(1) from None


@contextmanager
def json_alone(wanted: bool) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Keeps stdout for one JSON object: whatever else is printed meanwhile, by C++ too, goes to stderr.

    Yields the function that prints the object; it does nothing unless ``wanted``.
    """
    if not wanted or console.quiet:
        yield lambda _result: None
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
