"""The quick run of every benchmark of ``auto_scheduler``; the figures of these runs mean nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
METRICS = {
    "tenset_accuracy": ("models",),
    "ansor_search": ("wall_clock_to_xgb_final", "trials_to_xgb_final"),
    "ansor_prediction": ("speedup_over_xgb", "peak_memory_mib"),
}


@pytest.mark.parametrize("name", METRICS)
def test_a_quick_run_writes_its_metrics(name: str, tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), "--quick", "--json", str(path)]
    # Two minutes are the promise; a machine that does something else meanwhile gets twice that.
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr
    result = json.loads(path.read_text())
    assert set(result) == {"benchmark", "machine", "versions", "settings", "metrics"}
    assert result["benchmark"] == name
    assert set(METRICS[name]) <= set(result["metrics"])
    if name == "tenset_accuracy":
        rows = result["metrics"]["models"]
        assert {"gnn", "xgb", "random", "constant", "node-count"} <= set(rows)
        assert rows["constant"]["pairwise_accuracy"]["mean"] == 0.5
