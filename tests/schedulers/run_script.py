"""Tests of the script beside an exported library, which is run as a user does where this package is not installed.

Each scheduler has its own script, and its ``test_run.py`` takes these tests.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tvm_gnn_cost.schedulers import scheduler
from tvm_gnn_cost.schedulers.scheduler import Network
from tvm_gnn_cost.tuning.library import write_library

__all__ = ["library", "test_it_draws_inputs_and_writes_nothing", "test_the_library_computes_what_the_network_does"]


@pytest.fixture(scope="module")
def library(network: Network, target: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiled = scheduler().compile(network, target)
    return write_library(compiled, network, scheduler(), str(target), tmp_path_factory.mktemp("library"), {})


def run(folder: Path, *arguments: object) -> subprocess.CompletedProcess[str]:
    """Runs the script in a process that cannot import this package, from another folder."""
    (folder / "sitecustomize.py").write_text("import sys\nsys.modules['tvm_gnn_cost'] = None\n")
    environment = {name: value for name, value in os.environ.items() if name != "TVM_NUM_THREADS"}
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment | {"PYTHONPATH": str(folder)},
        timeout=300,
        check=False,
    )


def test_the_library_computes_what_the_network_does(library: Path, network: Network, tmp_path: Path) -> None:
    blocked = run(tmp_path, "-c", "import tvm_gnn_cost")
    assert "ModuleNotFoundError" in blocked.stderr
    np.savez(tmp_path / "inputs.npz", **network.inputs)  # type: ignore[arg-type]
    done = run(tmp_path, library.with_name("run.py"), "inputs.npz", "outputs.npz")
    assert done.returncode == 0, done.stderr
    outputs = np.load(tmp_path / "outputs.npz")
    # Ansor's networks come from no other framework.
    expected = network.expected or scheduler().load(library).run(network.inputs)
    np.testing.assert_allclose(outputs["output_0"], expected[0], atol=1e-5)
    assert re.fullmatch(
        rf".*'output_0': \('float32', {re.escape(str(expected[0].shape))}\).*\n[0-9.]+ ms\n", done.stdout
    )


def test_it_draws_inputs_and_writes_nothing(library: Path, tmp_path: Path) -> None:
    before = sorted(library.parent.iterdir())
    done = run(tmp_path, library.with_name("run.py"))
    assert done.returncode == 0, done.stderr
    assert sorted(library.parent.iterdir()) == before
    # Hidden is what a TVM up to 0.19 makes wherever it is imported.
    assert {path.name for path in tmp_path.iterdir() if path.name[0] != "."} <= {"sitecustomize.py", "__pycache__"}
