from __future__ import annotations

import subprocess
import sys

import pytest

from tests.command import call

COMMANDS = ("encode", "measure", "prepare", "train", "rank", "evaluate")


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_with_an_example(command: str, capfd: pytest.CaptureFixture[str]):
    code, out, _ = call(capfd, "tpugraphs", command, "--help")
    assert code == 0
    assert f"Example: tvm-gnn-cost tpugraphs {command} " in " ".join(out.split())


def test_the_commands_are_listed(capfd: pytest.CaptureFixture[str]):
    _, out, _ = call(capfd, "tpugraphs", "--help")
    assert all(f" {command} " in out for command in COMMANDS)


def test_help_imports_nothing_that_takes_long():
    script = """
import sys
from tvm_gnn_cost.cli.tpugraphs import app
try:
    app(["train", "--help"])
except SystemExit:
    pass
loaded = [name for name in ("numpy", "torch", "jax", "tvm", "scipy") if name in sys.modules]
assert not loaded, loaded
"""
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert ran.returncode == 0, ran.stderr
