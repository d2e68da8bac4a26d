from __future__ import annotations

import numpy as np
import pytest
import torch

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.evaluation.metrics import pairwise_accuracy
from tvm_gnn_cost.graphs.buffer_stores import BufferStores
from tvm_gnn_cost.models.buffer_store_trees import BufferStoreTrees, grow_trees


def tasks(count: int, seed: int, size: int = 16) -> tuple[BufferStores, np.ndarray, np.ndarray]:
    """Stores, throughput and tasks of programs of two stores each, whose costs add up to the latency.

    A store's first value is the logarithm of its cost, the second is the task's.
    """
    rng = np.random.default_rng(seed)
    programs = size * count
    rows = rng.normal(size=(2 * programs, 8)).astype(np.float32)
    graph = np.repeat(np.arange(programs), 2)
    task = np.repeat(np.arange(count), size).astype(np.int32)
    rows[:, 1] = task[graph]
    rows[::5, 7] = np.nan
    latency = np.bincount(graph, np.exp(rows[:, 0]))
    throughput = (0.1 / latency).astype(np.float32)
    return BufferStores(rows, graph, programs), throughput, rng.permutation(count).astype(np.int32)[task]


@pytest.mark.parametrize(("count", "size"), [(40, 16), (4, 200)])
def test_trees_rank_the_programs_of_tasks_that_trained_nothing(count: int, size: int) -> None:
    trees = grow_trees(*tasks(count, 1, size), count=200, seed=0)
    stores, throughput, _ = tasks(1, 2)
    assert pairwise_accuracy(trees.score(stores), throughput) > 0.8


def test_programs_of_different_tasks_are_not_compared() -> None:
    stores, throughput, task = tasks(8, 1)
    slower = np.where(task < 4, throughput, throughput / 2).astype(np.float32)
    one, other = (grow_trees(stores, some, task, count=3, seed=0).score(stores) for some in (throughput, slower))
    np.testing.assert_array_equal(one, other)


def test_what_differs_by_noise_and_a_task_of_one_program_teach_nothing() -> None:
    stores, _, task = tasks(4, 1)
    even = np.linspace(0.99, 1, len(task), dtype=np.float32)
    assert not grow_trees(stores, even, task, count=3, seed=0).score(stores).any()
    alone = np.arange(len(task), dtype=np.int32)
    assert not grow_trees(stores, np.linspace(0.1, 1, len(task), dtype=np.float32), alone, 3, 0).score(stores).any()


def test_a_program_without_stores_scores_nothing() -> None:
    stores, throughput, task = tasks(4, 1)
    trees = grow_trees(stores, throughput, task, count=3, seed=0)
    more = BufferStores(stores.x, stores.batch, stores.num_graphs + 2)
    np.testing.assert_array_equal(trees.score(more), [*trees.score(stores), 0, 0])
    none = BufferStores(stores.x[:0], stores.batch[:0], 2)
    np.testing.assert_array_equal(trees.score(none), [0, 0])


def test_a_score_is_what_the_stores_add() -> None:
    stores, throughput, task = tasks(4, 1)
    trees = grow_trees(stores, throughput, task, count=3, seed=0)
    np.testing.assert_allclose(trees.of_each(stores).reshape(-1, 2).sum(1), trees.score(stores), rtol=1e-6)


def test_the_seed_decides() -> None:
    stores = tasks(1, 2)[0]
    scores = [grow_trees(*tasks(10, 1), count=5, seed=seed).score(stores) for seed in (0, 0, 1)]
    np.testing.assert_array_equal(scores[0], scores[1])
    assert not np.array_equal(scores[0], scores[2])


def test_trees_are_added_to_those_of_another_machine() -> None:
    stores, throughput, task = tasks(8, 1)
    earlier = grow_trees(stores, throughput, task, count=6, seed=0)
    before = earlier.score(stores)
    both = grow_trees(stores, (1 - throughput).astype(np.float32), task, count=4, seed=0, earlier=earlier)
    assert both.booster.num_boosted_rounds() == 10
    np.testing.assert_array_equal(BufferStoreTrees(both.booster[:6]).score(stores), before)
    np.testing.assert_array_equal(earlier.score(stores), before)
    # They correct what is wrong on the other machine.
    assert pairwise_accuracy(both.score(stores), 1 - throughput) > pairwise_accuracy(before, 1 - throughput) + 0.05
    none = grow_trees(stores, throughput, task, count=0, seed=0, earlier=earlier)
    np.testing.assert_array_equal(none.score(stores), before)


def test_the_scale_multiplies_what_xgboost_says() -> None:
    trees, stores = grow_trees(*tasks(4, 1), count=3, seed=0), tasks(1, 2)[0]
    np.testing.assert_array_equal(BufferStoreTrees(trees.booster, 2.5).score(stores), 2.5 * trees.score(stores))


def test_trees_survive_a_round_trip() -> None:
    trees, stores = grow_trees(*tasks(4, 1), count=3, seed=0), tasks(1, 2)[0]
    found = BufferStoreTrees.from_tensor(trees.to_tensor(), 1.0, 8)
    np.testing.assert_array_equal(found.score(stores), trees.score(stores))
    assert torch.equal(found.to_tensor(), trees.to_tensor())


def test_damaged_trees_are_named() -> None:
    tensor = grow_trees(*tasks(4, 1), count=3, seed=0).to_tensor()
    with pytest.raises(InputError, match="its trees read rows of 8 values, not of 9"):
        BufferStoreTrees.from_tensor(tensor, 1.0, 9)
    for broken in (tensor[:-9], tensor.flip(0), torch.zeros(0, dtype=torch.uint8)):
        with pytest.raises(InputError, match="its trees are damaged"):
            BufferStoreTrees.from_tensor(broken, 1.0, 8)
