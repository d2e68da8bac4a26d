from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests import synthetic
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.evaluation.metrics import pairwise_accuracy
from tvm_gnn_cost.graphs.buffer_stores import buffer_stores
from tvm_gnn_cost.graphs.values import VALUES
from tvm_gnn_cost.models.buffer_store_trees import grow_trees
from tvm_gnn_cost.models.topk_gnn import PRESETS
from tvm_gnn_cost.scoring.checkpoint import Checkpoint
from tvm_gnn_cost.scoring.cost_model import CostModel, UpdateSettings
from tvm_gnn_cost.scoring.exploration import structures
from tvm_gnn_cost.training.fit import FitSettings, fit, new_checkpoint

#: Synthetic programs differ in more than a few small steps.
SETTINGS = UpdateSettings(trees=60, learning_rate=0.3)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    config = replace(PRESETS["gnn"], hidden=16, layers=2, head=(16,))
    train = synthetic.programs(16, 16, seed=1)
    start = new_checkpoint(config, synthetic.vectors(), train, seed=0)
    settings = FitSettings(epochs=40, trees=0, patience=40, tasks_per_batch=2, learning_rate=5e-3)
    return fit(start, train, synthetic.programs(4, 16, seed=2), settings, tmp_path_factory.mktemp("fit")).checkpoint


def test_it_learns_a_task_that_contradicts_what_it_knew_and_keeps_what_it_knew(checkpoint: Checkpoint) -> None:
    model, odd = CostModel(checkpoint, SETTINGS), synthetic.programs(1, 64, seed=9)
    known = synthetic.programs(1, 64, seed=10)
    before_known = pairwise_accuracy(model.predict(known.graphs), -known.latency)
    upside_down = 1 / odd.latency
    before = pairwise_accuracy(model.predict(odd.graphs), -upside_down)
    model.update(odd.graphs, upside_down, task="odd")
    after = pairwise_accuracy(model.predict(odd.graphs), -upside_down)
    assert after > before + 0.05
    # A round that agrees with what was known brings the ranking back.
    assert before_known > 0.8
    model.update(known.graphs, known.latency, task="known")
    assert pairwise_accuracy(model.predict(known.graphs), -known.latency) > before_known


def test_it_learns_from_other_tasks(checkpoint: Checkpoint) -> None:
    odd, next_one = synthetic.programs(1, 64, seed=9), synthetic.programs(1, 64, seed=8)
    model, alone = CostModel(checkpoint, SETTINGS), CostModel(checkpoint, replace(SETTINGS, others=0))
    before = pairwise_accuracy(model.predict(next_one.graphs), -1 / next_one.latency)
    accuracy = []
    for one in (model, alone):
        one.update(odd.graphs, 1 / odd.latency, task="odd")
        one.update(next_one.graphs.select(np.arange(2)), 1 / next_one.latency[:2], task="next")
        accuracy.append(pairwise_accuracy(one.predict(next_one.graphs), -1 / next_one.latency))
    assert accuracy[0] > max(accuracy[1], before) + 0.05


def test_without_trees_it_does_not_learn(checkpoint: Checkpoint) -> None:
    model, odd = CostModel(checkpoint, replace(SETTINGS, trees=0)), synthetic.programs(1, 64, seed=9)
    before = model.predict(odd.graphs)
    model.update(odd.graphs, 1 / odd.latency, task="odd")
    np.testing.assert_array_equal(model.predict(odd.graphs), before)
    assert model.updates == 1


def test_it_learns_what_the_trees_got_wrong(checkpoint: Checkpoint) -> None:
    odd = synthetic.programs(1, 64, seed=9)
    rows = buffer_stores(odd.graphs, CostModel(checkpoint).scorer.columns)
    trees = grow_trees(rows, (odd.latency.min() / odd.latency).astype(np.float32), odd.task, count=50, seed=0)
    model = CostModel(replace(checkpoint, trees=replace(trees, scale=4.0)), SETTINGS)
    upside_down = 1 / odd.latency
    before = pairwise_accuracy(model.predict(odd.graphs), -upside_down)
    model.update(odd.graphs, upside_down, task="odd")
    assert pairwise_accuracy(model.predict(odd.graphs), -upside_down) > before + 0.05
    restored = CostModel(model.to_checkpoint(), SETTINGS)
    np.testing.assert_array_equal(restored.predict(odd.graphs), model.predict(odd.graphs))


def test_many_updates_do_not_drift_away_from_the_pretrained_model(checkpoint: Checkpoint) -> None:
    model, known = CostModel(checkpoint, SETTINGS), synthetic.programs(2, 32, seed=10)
    before = pairwise_accuracy(model.predict(known.graphs), -known.latency)
    for round_number in range(8):
        new = synthetic.programs(1, 16, seed=20 + round_number)
        model.update(new.graphs, new.latency, task=f"task{round_number % 2}")
    assert pairwise_accuracy(model.predict(known.graphs), -known.latency) > before - 0.05


def test_the_same_rounds_give_the_same_model(checkpoint: Checkpoint) -> None:
    models = [CostModel(checkpoint, SETTINGS) for _ in range(2)]
    for model in models:
        torch.rand(3)  # somebody else's random numbers must not matter
        for number in range(2):
            new = synthetic.programs(1, 16, seed=30 + number)
            model.update(new.graphs, new.latency, task="task")
    population = synthetic.graphs(8)
    np.testing.assert_array_equal(models[0].predict(population), models[1].predict(population))


def test_save_and_load_restore_the_correction_and_the_buffer(checkpoint: Checkpoint, tmp_path: Path) -> None:
    model = CostModel(checkpoint, SETTINGS)
    first, second = synthetic.programs(1, 16, seed=40, failed=2), synthetic.programs(1, 16, seed=41)
    model.update(first.graphs, first.latency, task="a")
    model.to_checkpoint().save(tmp_path / "search.safetensors")
    restored = CostModel(Checkpoint.load(tmp_path / "search.safetensors"), SETTINGS)
    population = synthetic.graphs(8)
    np.testing.assert_array_equal(model.predict(population), restored.predict(population))
    assert restored.buffered == 16
    for one in (model, restored):
        one.update(second.graphs, second.latency, task="b")
    np.testing.assert_array_equal(model.predict(population), restored.predict(population))


def test_the_buffer_is_bounded_and_keeps_the_best(checkpoint: Checkpoint) -> None:
    model = CostModel(checkpoint, replace(SETTINGS, buffer_size=40))
    best = np.inf
    for number in range(6):
        new = synthetic.programs(1, 16, seed=50 + number)
        model.update(new.graphs, new.latency, task="big")
        best = min(best, new.latency.min())
    small = synthetic.programs(1, 8, seed=60)
    model.update(small.graphs, small.latency, task="small")
    assert model.buffered == 40
    assert len(model.buffers["small"].latency) == 8
    assert model.buffers["big"].latency.min() == best


def test_rounds_in_which_everything_failed_change_nothing(checkpoint: Checkpoint) -> None:
    model, population = CostModel(checkpoint, SETTINGS), synthetic.graphs(6)
    before = model.predict(population)
    model.update(synthetic.graphs(4), np.full(4, np.inf), task="task")
    np.testing.assert_array_equal(model.predict(population), before)


@pytest.mark.parametrize(
    "lost", ["buffer.0.latency", "buffer.0.edges", "buffer.0.score", "correction", "updates", "tasks"]
)
def test_a_damaged_buffer_is_named(checkpoint: Checkpoint, tmp_path: Path, lost: str) -> None:
    model = CostModel(checkpoint, SETTINGS)
    new = synthetic.programs(1, 8, seed=40)
    model.update(new.graphs, new.latency, task="a")
    whole = model.to_checkpoint()
    replace(
        whole,
        extra={name: tensor for name, tensor in whole.extra.items() if name != lost},
        extra_info={name: value for name, value in whole.extra_info.items() if name != lost},
    ).save(tmp_path / "search.safetensors")
    damaged = Checkpoint.load(tmp_path / "search.safetensors")
    message = r"search\.safetensors: what it learned in a search is damaged or missing \(.*" + lost.rpartition(".")[2]
    with pytest.raises(InputError, match=f"(?s){message}"):
        CostModel(damaged)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("latency", 0.0),
        ("latency", math.nan),
        ("score", math.inf),
        ("edges", 99),
        ("relation", 7),
        ("node_type", -1),
        ("node_offsets", 10**9),
    ],
)
def test_a_wrong_number_in_a_buffer_is_named(checkpoint: Checkpoint, name: str, value: float) -> None:
    model = CostModel(checkpoint, SETTINGS)
    new = synthetic.programs(1, 8, seed=40)
    model.update(new.graphs, new.latency, task="a")
    saved = model.to_checkpoint()
    CostModel(saved)
    array = saved.extra[f"buffer.0.{name}"].clone()
    array.view(-1)[-1] = value
    with pytest.raises(InputError, match=rf"damaged or missing \(the ({name}|node_type) of task 0\)"):
        CostModel(replace(saved, extra={**saved.extra, f"buffer.0.{name}": array}))


def test_a_buffer_of_graphs_with_other_node_values_is_refused(checkpoint: Checkpoint) -> None:
    model = CostModel(checkpoint, SETTINGS)
    new = synthetic.programs(1, 8, seed=40)
    model.update(new.graphs, new.latency, task="a")
    saved = model.to_checkpoint()
    older = replace(saved, extra={**saved.extra, "buffer.0.values": saved.extra["buffer.0.values"][:, :63]})
    with pytest.raises(InputError, match=rf"damaged or missing \(63 features per node, expected {len(VALUES)}\)"):
        CostModel(older)


def test_a_model_that_was_never_in_a_search_starts_with_an_empty_buffer(checkpoint: Checkpoint) -> None:
    model = CostModel(checkpoint)
    assert (model.buffered, model.updates, model.detail) == (0, 0, "statements")
    population = synthetic.graphs(4)
    np.testing.assert_array_equal(model.predict(population), CostModel(checkpoint).predict(population))


def test_a_graph_without_nodes_is_not_learned_from(checkpoint: Checkpoint) -> None:
    model = CostModel(checkpoint, SETTINGS)
    empty = replace(synthetic.graphs(2), node_offsets=np.zeros(3, np.int64), edge_offsets=np.zeros(3, np.int64))
    model.update(empty, np.ones(2), task="task")
    assert (model.buffered, model.updates) == (0, 0)


def test_a_round_explores_structures_until_they_are_measured(checkpoint: Checkpoint) -> None:
    candidates = synthetic.programs(1, 64, seed=9)
    structure = structures(candidates.graphs)
    model, without = CostModel(checkpoint), CostModel(checkpoint, UpdateSettings(explored=0))
    plain = model.predict(candidates.graphs)
    raised = model.predict(candidates.graphs, task="new") > plain
    assert 0 < raised.sum() <= 64 // 5
    assert len(np.unique(structure[raised])) == raised.sum()
    np.testing.assert_array_equal(without.predict(candidates.graphs, task="new"), plain)
    # With each program measured three times, nothing is left to explore.
    for _ in range(3):
        model.update(candidates.graphs, candidates.latency, task="new")
    learned = model.predict(candidates.graphs)
    np.testing.assert_array_equal(model.predict(candidates.graphs, task="new"), learned)
    assert (model.predict(candidates.graphs, task="another") > learned).any()


@pytest.mark.parametrize(("programs", "threads"), [(32, 1), (256, 2)])
def test_few_programs_are_scored_on_one_thread(
    checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch, programs: int, threads: int
) -> None:
    model, used, before = CostModel(checkpoint), [], torch.get_num_threads()
    embed = model.scorer.model.embed
    monkeypatch.setattr(model.scorer.model, "embed", lambda batch: used.append(torch.get_num_threads()) or embed(batch))
    torch.set_num_threads(2)
    try:
        model.predict(synthetic.programs(1, programs, seed=3).graphs)
        assert set(used) == {threads}
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
