from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tvm_gnn_cost.tuning import contestant
from tvm_gnn_cost.tuning.peers import save_program


def run(*arguments: object, **environment: str) -> list[dict[str, Any]]:
    """What the process says when it is asked for a turn of a millisecond."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", contestant.__name__, *map(str, arguments)],
        input="0.001\n",
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=300,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture
def program(tmp_path: Path) -> Path:
    np.savez(tmp_path / "inputs.npz", np.full((2, 4), 3.0, np.float32), names=np.array(["x"]))
    return save_program(torch.export.export(nn.Softmax(-1), (torch.zeros(2, 4),)), tmp_path)


def test_a_peer_writes_its_outputs_and_is_timed(program: Path, tmp_path: Path) -> None:
    ready, timed = run("PyTorch", program, tmp_path / "inputs.npz", tmp_path / "outputs.npz")
    assert ready == {}
    assert 0 < timed["seconds"] < 10
    outputs = np.load(tmp_path / "outputs.npz")
    np.testing.assert_allclose(outputs["arr_0"], np.full((2, 4), 0.25))


def test_a_missing_package_is_named(program: Path, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['onnxruntime'] = None\n")
    arguments = ("ONNX Runtime", program, tmp_path / "inputs.npz", tmp_path / "outputs.npz")
    (said,) = run(*arguments, PYTHONPATH=str(tmp_path))
    assert said == {"failure": "onnxruntime is not installed; pip install 'tvm-gnn-cost[compare]'"}


def test_the_matrix_product_is_timed() -> None:
    ready, timed = run()
    assert ready == {}
    assert 1e9 < 2 * contestant.SIZE**3 / timed["seconds"] < 1e15
