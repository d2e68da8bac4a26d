"""Each example runs as its first lines say, at the smallest size."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


#: Other tests keep the machine busy: nobody waits for their end before measuring.
IMPATIENT = """
import functools, runpy, sys, tvm_gnn_cost
if __name__ == "__main__":
    tvm_gnn_cost.collect = functools.partial(tvm_gnn_cost.collect, patience_s=0)
    sys.argv = sys.argv[1:]
    runpy.run_path(sys.argv[0], run_name="__main__")
"""


def run(script: str, *arguments: object) -> str:
    command = [sys.executable, "-c", IMPATIENT, EXAMPLES / script, *arguments]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=400, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.needs("s_tir")
def test_meta_schedule_drop_in() -> None:
    assert "4 programs, the fastest takes" in run("meta_schedule_drop_in.py", 4)


@pytest.mark.needs("auto_scheduler")
def test_auto_scheduler_drop_in() -> None:
    assert "4 programs, the fastest takes" in run("auto_scheduler_drop_in.py", 4)


@pytest.mark.needs("s_tir")
def test_train_on_your_measurements(tmp_path: Path) -> None:
    out = run("train_on_your_measurements.py", tmp_path, 3)
    rows = [line for line in out.splitlines() if line.startswith("pairwise accuracy")]
    assert [row.split(": ")[1] for row in rows] == ["this model", "XGBoost", "random"]
    assert (tmp_path / "model.safetensors").is_file()


@pytest.mark.needs("s_tir")
def test_rank_tpugraphs_layouts(tmp_path: Path) -> None:
    out = run("rank_tpugraphs_layouts.py", tmp_path, 1)
    assert out.count("ranks first") == len(list((tmp_path / "prepared").rglob("test/*.npz")))


@pytest.mark.needs("s_tir")
def test_draw_program_graph(tmp_path: Path) -> None:
    out = run("draw_program_graph.py", tmp_path / "graph.svg")
    assert "loop over 16, vectorized" in out
    assert "<svg" in (tmp_path / "graph.svg").read_text()


def test_every_example_is_run() -> None:
    tested = {name.removeprefix("test_") for name in globals() if name.startswith("test_")}
    assert {path.stem for path in EXAMPLES.glob("*.py")} <= tested
