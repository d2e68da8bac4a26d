from __future__ import annotations

from typing import Any

import numpy as np
from tvm.s_tir import meta_schedule as ms

from tvm_gnn_cost.schedulers.database.features import per_store_features
from tvm_gnn_cost.schedulers.meta_schedule.sampling import workload_of
from tvm_gnn_cost.schedulers.scheduler import Task


def test_they_are_tvms(task: Task, target: Any, candidates: list[Any]) -> None:
    workload = workload_of(task)
    context = ms.TuneContext(workload, target=target)
    expected = ms.feature_extractor.PerStoreFeature().extract_from(context, candidates)
    for ours, theirs in zip(per_store_features(workload, target, candidates), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs.numpy().astype(np.float32))


def test_what_tvm_refuses_has_no_row_and_the_others_have_theirs(task: Task, target: Any, candidates: list[Any]) -> None:
    workload = workload_of(task)
    # TVM fails for the three together.
    found = per_store_features(workload, target, [candidates[0], None, candidates[1]])
    assert found[1].shape == (0, 164)
    for ours, theirs in zip((found[0], found[2]), per_store_features(workload, target, candidates[:2]), strict=True):
        np.testing.assert_array_equal(ours, theirs)
