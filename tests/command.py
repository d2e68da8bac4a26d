"""The command line, called in this process: faster than in one of its own, which tests/test_cli.py starts."""

from __future__ import annotations

import os

import pytest

from tvm_gnn_cost.cli import outcome
from tvm_gnn_cost.cli.app import app


def call(capfd: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of one command."""
    capfd.readouterr()
    # The console writes to what stderr was when it was imported; here that is another test's.
    with open(os.dup(2), "w") as stderr, pytest.MonkeyPatch.context() as patch:
        patch.setattr(outcome.console, "_file", stderr)
        with pytest.raises(SystemExit) as ended:
            app([str(argument) for argument in arguments])
    out, err = capfd.readouterr()
    code = ended.value.code
    return int(code or 0), out, err
