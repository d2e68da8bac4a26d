"""Exit codes, error messages and JSON results of commands."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from tvm_gnn_cost.errors import InputError, WorkError
from tvm_gnn_cost.extras import missing_packages_named
from tvm_gnn_cost.files import check_file, write_json

#: For progress and tables; results go to stdout. It writes to a copy of stderr, because a search redirects TVM's stderr
#: to a file.
console = Console(
    file=os.fdopen(os.dup(2), "w", encoding=sys.stderr.encoding, errors="replace"),
    # Names in brackets or between colons are neither markup nor emoji.
    markup=False,
    emoji=False,
    # DDP runs the command once per device; only the first process prints.
    quiet=os.environ.get("LOCAL_RANK", "0") != "0",
)


@contextmanager
def exit_codes(how_to_resume: str = "") -> Iterator[None]:
    """Converts expected errors inside the block to a message on stderr and an exit code.

    The code is 1 for a WorkError, 2 for an InputError or OSError and 130 for Ctrl-C. Any other exception is a bug and
    keeps its traceback.
    """
    try:
        with missing_packages_named():
            yield
    except KeyboardInterrupt:
        console.print(f"interrupted; {how_to_resume}" if how_to_resume else "interrupted")
        raise typer.Exit(130) from None
    except (InputError, OSError) as error:
        console.print(f"error: {error}", soft_wrap=True)
        raise typer.Exit(2) from None
    except WorkError as error:
        console.print(f"failed: {error}", soft_wrap=True)
        raise typer.Exit(1) from None


@contextmanager
def json_result(path: Path | None) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yields a function that writes a command's result as JSON; it does nothing without a ``path``.

    If the JSON goes to stdout, everything else that is printed, also by C++, goes to stderr.
    """
    if path is None or console.quiet:
        yield lambda _result: None
        return
    if str(path) != "-":
        # Fail now if the path cannot be written, not after hours of work.
        check_file(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        yield lambda result: write_json(path, result)
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
    """Prints the first twenty skipped items."""
    for problem in problems[:20]:
        console.print(f"left out: {problem}", soft_wrap=True)
    if len(problems) > 20:
        console.print(f"and {len(problems) - 20} more")
