"""The quick run of every benchmark of ``auto_scheduler``; the figures of these runs mean nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.benchmarks.quick_run import check_accuracy, quick_run

METRICS = {
    "tenset_accuracy": ("models",),
    "ansor_search": ("wall_clock_to_xgb_final", "trials_to_xgb_final"),
    "ansor_prediction": ("speedup_over_xgb", "peak_memory_mib"),
}


@pytest.mark.parametrize("name", METRICS)
def test_a_quick_run_writes_its_metrics(name: str, tmp_path: Path) -> None:
    metrics = quick_run(name, METRICS[name], tmp_path / "result.json")
    if name == "tenset_accuracy":
        check_accuracy(metrics)
