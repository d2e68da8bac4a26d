"""Every benchmark's quick run, as a user starts it; the figures of these runs mean nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("tvm")

from tests.benchmarks.quick_run import BENCHMARKS, check_accuracy, quick_run
from tvm_gnn_cost.datasets.collect import load_target

METRICS = {
    "extraction": ("ns_per_node", "speedup_over_per_store_feature"),
    "prediction": ("speedup_over_xgb",),
    "accuracy": ("models",),
    "online": ("pairwise_before", "pairwise_after", "known_before", "known_after"),
    "retest": ("pairwise_accuracy", "top1_unweighted"),
    "search": ("wall_clock_to_xgb_final", "trials_to_xgb_final"),
    "tpugraphs_accuracy": ("models", "retest_tau"),
    "tpugraphs_speed": ("cases",),
    "data_card": ("programs", "tasks", "retest_pairwise_accuracy"),
}


@pytest.mark.parametrize("name", METRICS)
def test_a_quick_run_writes_its_metrics(name: str, tmp_path: Path) -> None:
    if name == "retest":
        try:
            load_target(BENCHMARKS / "data" / "cpu-2core")
        except ValueError as error:
            pytest.skip(str(error))
    metrics = quick_run(name, METRICS[name], tmp_path / "result.json")
    if name == "accuracy":
        check_accuracy(metrics)
