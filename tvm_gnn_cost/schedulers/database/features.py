"""MetaSchedule's per-store features, the input of its XGBoost model."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import tvm

from tvm_gnn_cost.datasets.programs import PER_STORE_COLUMNS
from tvm_gnn_cost.schedulers.bisection import each_or_empty
from tvm_gnn_cost.schedulers.installed_tvm import ms

_NONE = np.zeros((0, PER_STORE_COLUMNS), np.float32)


def per_store_features(
    workload: tvm.IRModule, target: tvm.target.Target, candidates: Sequence[ms.MeasureCandidate]
) -> list[npt.NDArray[np.float32]]:
    """The features of candidates of one task.

    Args:
        workload: The unscheduled module.
        target: The target of the programs.
        candidates: The candidates.

    Returns:
        float32[stores, 164] for each candidate; float32[0, 164] for one that TVM cannot lower.
    """
    extractor = ms.feature_extractor.PerStoreFeature()
    context = ms.TuneContext(workload, target=target)

    def extract(some: Sequence[ms.MeasureCandidate]) -> list[npt.NDArray[np.float32]]:
        return [rows.numpy().astype(np.float32) for rows in extractor.extract_from(context, list(some))]

    return each_or_empty(extract, candidates, _NONE)
