"""Runs a benchmark as a user starts it, but quick; the figures of these runs mean nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def quick_run(name: str, metrics: Iterable[str], path: Path) -> dict[str, Any]:
    """The metrics that it wrote to ``path``, these among them."""
    command = [sys.executable, str(BENCHMARKS / f"{name}.py"), "--quick", "--json", str(path)]
    # Two minutes are the promise; a machine that does something else meanwhile gets twice that.
    ran = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert ran.returncode == 0, ran.stderr
    result = json.loads(path.read_text())
    assert set(result) == {"benchmark", "machine", "versions", "settings", "metrics"}
    assert result["benchmark"] == name
    found: dict[str, Any] = result["metrics"]
    assert set(metrics) <= set(found)
    return found


def check_accuracy(metrics: dict[str, Any]) -> None:
    """What an accuracy benchmark says of every model."""
    rows = metrics["models"]
    assert {"gnn", "xgb", "random", "constant", "node-count"} <= set(rows)
    for metric in ("huber", "rmse", "pairwise_accuracy", "kendall_tau", "top1", "top5"):
        assert set(rows["gnn"][metric]) == {"mean", "std"}
    assert rows["constant"]["pairwise_accuracy"]["mean"] == 0.5
