"""``auto_scheduler``'s per-store features, the input of its XGBoost model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import auto_scheduler
from tvm.auto_scheduler.feature import get_per_store_features_from_states

from tvm_gnn_cost.datasets.programs import PER_STORE_COLUMNS
from tvm_gnn_cost.schedulers.bisection import each_or_empty

_NONE = np.zeros((0, PER_STORE_COLUMNS), np.float32)


def per_store_features(task: auto_scheduler.SearchTask, states: Sequence[Any]) -> list[npt.NDArray[np.float32]]:
    """The features of states of one task.

    Returns:
        float32[stores, 164] for each state; float32[0, 164] for one that TVM cannot lower.
    """

    def extract(some: Sequence[Any]) -> list[npt.NDArray[np.float32]]:
        return [_rows(found) for found in get_per_store_features_from_states(list(some), task)]

    return each_or_empty(extract, states, _NONE)


def _rows(found: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    # TVM returns a single row of zeros for a state that it cannot lower.
    return _NONE if found.size == 0 or found.min() == found.max() == 0 else found.astype(np.float32)
