"""Each example runs as its first lines say, at the smallest size."""

from __future__ import annotations

import functools
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import tvm_gnn_cost

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(script: str, *arguments: object) -> str:
    """Runs a script as a user does."""
    command = [sys.executable, EXAMPLES / script, *arguments]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def load(script: str) -> ModuleType:
    """A script whose ``main`` is called in this process, which has imported and started what it needs."""
    spec = importlib.util.spec_from_file_location(script.removesuffix(".py"), EXAMPLES / script)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# The pages' snippets search with TVM's own builder and runner too.
@pytest.mark.slow
@pytest.mark.needs("s_tir")
def test_meta_schedule_drop_in() -> None:
    assert "4 programs, the fastest takes" in run("meta_schedule_drop_in.py", 4)


@pytest.mark.slow
@pytest.mark.needs("auto_scheduler")
def test_auto_scheduler_drop_in() -> None:
    assert "4 programs, the fastest takes" in run("auto_scheduler_drop_in.py", 4)


# The pages of docs run the same steps as commands.
@pytest.mark.slow
@pytest.mark.needs("s_tir")
def test_train_on_your_measurements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    example, train = load("train_on_your_measurements.py"), tvm_gnn_cost.train

    def shorter(*arguments: Any, **options: Any) -> Any:
        return train(*arguments, **options | ({"epochs": 1} if "epochs" in options else {}))

    # Other tests keep the machine busy: nobody waits for their end before measuring.
    monkeypatch.setattr(tvm_gnn_cost, "collect", functools.partial(tvm_gnn_cost.collect, patience_s=0))
    monkeypatch.setattr(tvm_gnn_cost, "train", shorter)
    monkeypatch.setattr(example, "TRAINED", example.TRAINED[:3])
    example.main(tmp_path, 3)
    rows = [line for line in capsys.readouterr().out.splitlines() if line.startswith("pairwise accuracy")]
    assert [row.split(": ")[1] for row in rows] == ["this model", "XGBoost", "random"]
    assert (tmp_path / "model.safetensors").is_file()


# The pages of docs run the same steps as commands.
@pytest.mark.slow
@pytest.mark.needs("s_tir")
def test_rank_tpugraphs_layouts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load("rank_tpugraphs_layouts.py").main(tmp_path, 1)
    ranked = capsys.readouterr().out.count("ranks first")
    assert ranked == len(list((tmp_path / "prepared").rglob("test/*.npz")))


@pytest.mark.needs("s_tir")
def test_draw_program_graph(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load("draw_program_graph.py").main(tmp_path / "graph.svg")
    assert "loop over 16, vectorized" in capsys.readouterr().out
    assert "<svg" in (tmp_path / "graph.svg").read_text()


def test_every_example_is_run() -> None:
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {path.stem for path in EXAMPLES.glob("*.py")} <= tested
