"""The command line, called in this process or in one of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tvm_gnn_cost.cli import outcome
from tvm_gnn_cost.cli.app import app

#: Starts the command line in a process of its own.
COMMAND = [sys.executable, "-c", "from tvm_gnn_cost.cli import main; main()"]


@contextmanager
def console_of_test() -> Iterator[None]:
    """Lets the console write to this test's stderr; it writes to what stderr was when it was imported."""
    with open(os.dup(2), "w") as stderr, pytest.MonkeyPatch.context() as patch:
        patch.setattr(outcome.console, "_file", stderr)
        yield


def call(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of one command in this process, which is faster."""
    capfd.readouterr()
    with console_of_test(), pytest.raises(SystemExit) as ended:
        app([str(argument) for argument in arguments])
    out, err = capfd.readouterr()
    code = ended.value.code
    return int(code or 0), out, err


def call_json(capfd: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    """The JSON that a command prints; nothing else may be on stdout."""
    code, out, err = call(capfd, *arguments, "--json", "-")
    assert code == 0, err
    assert out.count("\n") == 1
    found: dict[str, Any] = json.loads(out)
    return found


def assert_mistake(answer: tuple[int, str, str], sentence: str, code: int = 2) -> None:
    """The command ended with one sentence and no traceback."""
    ended, out, err = answer
    assert (ended, out) == (code, ""), err
    assert sentence in err.replace("\n", " ")
    assert "Traceback" not in err


def run(*arguments: object, timeout: float = 300) -> subprocess.CompletedProcess[str]:
    """One command in a process of its own, as a user runs it."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env=os.environ | {"COLUMNS": "200", "NO_COLOR": "1"},
        check=False,
    )
