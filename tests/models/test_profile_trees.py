from __future__ import annotations

import numpy as np
import pytest
import torch

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.evaluation.metrics import pairwise_accuracy
from tvm_gnn_cost.models.profile_trees import ProfileTrees, grow_trees


def tasks(count: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Profiles, throughput and tasks of 16 programs each: the first value slows down, the second is the task's."""
    rng = np.random.default_rng(seed)
    profiles = rng.normal(size=(16 * count, 8)).astype(np.float32)
    task = np.repeat(np.arange(count), 16).astype(np.int32)
    profiles[:, 1] = task
    profiles[::5, 7] = np.nan
    throughput = np.exp(-profiles[:, 0] - 3).astype(np.float32)
    return profiles, throughput, rng.permutation(count).astype(np.int32)[task]


def test_trees_rank_the_programs_of_tasks_that_trained_nothing() -> None:
    trees = grow_trees(*tasks(40, 1), count=400, seed=0)
    profiles, throughput, _ = tasks(1, 2)
    assert pairwise_accuracy(trees.score(profiles), throughput) > 0.8


def test_the_seed_decides() -> None:
    profiles = tasks(1, 2)[0]
    scores = [grow_trees(*tasks(10, 1), count=5, seed=seed).score(profiles) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(scores[0], scores[1])
    assert not np.array_equal(scores[0], scores[2])


def test_the_scale_multiplies_what_xgboost_says() -> None:
    trees, profiles = grow_trees(*tasks(4, 1), count=3, seed=0), tasks(1, 2)[0]
    np.testing.assert_array_equal(ProfileTrees(trees.booster, 2.5).score(profiles), 2.5 * trees.score(profiles))


def test_trees_survive_a_round_trip() -> None:
    trees, profiles = grow_trees(*tasks(4, 1), count=3, seed=0), tasks(1, 2)[0]
    found = ProfileTrees.from_tensor(trees.to_tensor(), 1.0, 8)
    np.testing.assert_array_equal(found.score(profiles), trees.score(profiles))
    assert torch.equal(found.to_tensor(), trees.to_tensor())


def test_damaged_trees_are_named() -> None:
    tensor = grow_trees(*tasks(4, 1), count=3, seed=0).to_tensor()
    with pytest.raises(InputError, match="its trees read profiles of 8 values, not of 9"):
        ProfileTrees.from_tensor(tensor, 1.0, 9)
    for broken in (tensor[:-9], tensor.flip(0), torch.zeros(0, dtype=torch.uint8)):
        with pytest.raises(InputError, match="its trees are damaged"):
            ProfileTrees.from_tensor(broken, 1.0, 8)
