"""The commands put together: help, examples, and what a mistake looks like."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import assert_mistake, call, run

COMMANDS = ("collect", "extract", "embed", "train", "evaluate", "tune", "report")


def test_help_is_quick_and_needs_neither_torch_nor_tvm() -> None:
    code = (
        "import sys, tvm_gnn_cost.cli.app as cli\n"
        "try: cli.app(['--help'])\n"
        "except SystemExit as end: assert end.code == 0\n"
        "assert not {'torch', 'tvm', 'matplotlib', 'numpy', 'jax'} & set(sys.modules), 'heavy'\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    for command in (*COMMANDS, "tpugraphs"):
        assert command in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_help_with_an_example(command: str, capfd: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capfd, command, "--help")
    assert code == 0
    assert f"tvm-gnn-cost {command}" in out.split("Example:")[1]


def test_an_unknown_command_is_a_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = run("nosuch")
    assert_mistake((done.returncode, done.stdout, done.stderr), "No such command")
    assert list(tmp_path.iterdir()) == []


def test_a_bug_keeps_its_traceback(store: Path, tmp_path: Path) -> None:
    """A ValueError that is not an InputError is a bug of ours or of a library, and not the user's mistake."""
    code = (
        "import numpy as np, tvm_gnn_cost.datasets.store as store\n"
        "store.GraphStore.programs = lambda *a, **k: np.zeros(2).reshape(3)\n"
        "from tvm_gnn_cost.cli import main; main()"
    )
    command = [sys.executable, "-c", code, "train", str(store), str(tmp_path / "model.safetensors")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "cannot reshape array" in done.stderr
