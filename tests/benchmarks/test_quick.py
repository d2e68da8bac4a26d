"""Every benchmark's quick run, as a user starts it; the figures of these runs mean nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("tvm")

from tvm_gnn_cost.datasets.collect import load_target

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
METRICS = {
    "extraction": ("ns_per_node", "speedup_over_per_store_feature"),
    "prediction": ("speedup_over_xgb",),
    "accuracy": ("models",),
    "online": ("pairwise_before", "pairwise_after", "known_before", "known_after"),
    "retest": ("pairwise_accuracy", "top1_unweighted"),
    "search": ("wall_clock_to_xgb_final", "trials_to_xgb_final"),
    "data_card": ("programs", "tasks", "retest_pairwise_accuracy"),
}


@pytest.mark.parametrize("name", METRICS)
def test_a_quick_run_writes_its_metrics(name: str, tmp_path: Path) -> None:
    if name == "retest":
        try:
            load_target(BENCHMARKS / "data" / "cpu-2core")
        except ValueError as error:
            pytest.skip(str(error))
    path = tmp_path / "result.json"
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), "--quick", "--json", str(path)]
    # Two minutes are the promise; a machine that does something else meanwhile gets twice that.
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr
    result = json.loads(path.read_text())
    assert set(result) == {"benchmark", "machine", "versions", "settings", "metrics"}
    assert result["benchmark"] == name
    assert set(METRICS[name]) <= set(result["metrics"])
    if name == "accuracy":
        rows = result["metrics"]["models"]
        assert {"gnn", "xgb", "random", "constant", "node-count"} <= set(rows)
        for metric in ("huber", "rmse", "pairwise_accuracy", "kendall_tau", "top1", "top5"):
            assert set(rows["gnn"][metric]) == {"mean", "std"}
        assert rows["constant"]["pairwise_accuracy"]["mean"] == 0.5
