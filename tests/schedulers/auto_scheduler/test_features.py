from __future__ import annotations

from typing import Any

import numpy as np
from tvm.auto_scheduler.feature import get_per_store_features_from_states

from tests.schedulers.auto_scheduler.small_tasks import broken_state
from tvm_gnn_cost.schedulers.auto_scheduler.features import per_store_features
from tvm_gnn_cost.schedulers.scheduler import Task


def test_they_are_tvms(task: Task, candidates: list[Any]) -> None:
    expected = get_per_store_features_from_states(candidates, task.workload)
    for ours, theirs in zip(per_store_features(task.workload, candidates), expected, strict=True):
        # TVM numbers buffers by their addresses, so some columns differ from call to call.
        assert ours.shape == theirs.shape
        assert ours.dtype == np.float32
        assert np.isfinite(ours).all()


def test_what_tvm_cannot_lower_has_no_row_and_the_others_have_theirs(task: Task, candidates: list[Any]) -> None:
    states = [candidates[0], broken_state(task.workload), candidates[1]]
    first, none, second = per_store_features(task.workload, states)
    assert none.shape == (0, 164)
    assert len(first) > 0
    assert len(second) > 0
