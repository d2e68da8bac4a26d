from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests import synthetic
from tvm_gnn_cost.datasets.store import GraphStore
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.evaluation.metrics import evaluate
from tvm_gnn_cost.graphs.values import VALUES, columns
from tvm_gnn_cost.models.topk_gnn import PRESETS
from tvm_gnn_cost.progress import EpochFinished, Event
from tvm_gnn_cost.scoring.calibration import spread
from tvm_gnn_cost.scoring.checkpoint import Checkpoint
from tvm_gnn_cost.scoring.scorer import Scorer
from tvm_gnn_cost.training.fit import (
    PRESET_SETTINGS,
    FitSettings,
    Step,
    TaskBatches,
    fit,
    new_checkpoint,
    preset_settings,
)

SMALL = replace(PRESETS["gnn"], hidden=16, layers=2, head=(16,))
SETTINGS = FitSettings(epochs=40, trees=0, patience=40, tasks_per_batch=2, learning_rate=5e-3)


def train(folder: Path, settings: FitSettings = SETTINGS, tasks: int = 16) -> Checkpoint:
    programs = synthetic.programs(tasks, 16, seed=1, failed=3)
    start = new_checkpoint(SMALL, synthetic.vectors(), programs, seed=0)
    return fit(start, programs, synthetic.programs(4, 16, seed=2), settings, folder).checkpoint


def test_training_learns_to_rank_tasks_it_never_saw(tmp_path: Path) -> None:
    test = synthetic.programs(6, 16, seed=3)
    untrained = Scorer(new_checkpoint(SMALL, synthetic.vectors(), test, seed=0)).score(test.graphs)
    trained = Scorer(train(tmp_path)).score(test.graphs)
    before, after = (evaluate(test, s, s, ("net0", "net1"))[0]["pairwise_accuracy"] for s in (untrained, trained))
    assert after > 0.8
    assert after > before + 0.1


def test_trees_learn_the_same_tasks_and_spread_like_the_network(tmp_path: Path) -> None:
    few = replace(SETTINGS, epochs=8)
    # Trees see stores and their loops alone, and the latency depends on every node: they need more programs for it.
    alone, both = train(tmp_path / "a", few, 128), train(tmp_path / "b", replace(few, trees=100), 128)
    assert alone.trees is None
    assert both.trees is not None
    assert all(torch.equal(alone.state[name], both.state[name]) for name in alone.state)
    validation, test = synthetic.programs(4, 16, seed=2), synthetic.programs(6, 16, seed=3)
    network, trees = Scorer(alone), Scorer(both)
    expected = spread(network.score(validation.graphs), validation.task)
    assert spread(trees.tree_scores(validation.graphs), validation.task) == pytest.approx(expected, rel=1e-6)
    scores = trees.tree_scores(test.graphs)
    assert evaluate(test, scores, scores, ("net0", "net1"))[0]["pairwise_accuracy"] > 0.7
    # A training that goes on without trees drops them.
    assert fit(both, test, validation, replace(few, epochs=1), tmp_path / "c").checkpoint.trees is None


def test_fine_tuning_keeps_the_trees_and_adds_one_per_fifty_programs(tmp_path: Path) -> None:
    start = train(tmp_path / "a", replace(SETTINGS, epochs=1, trees=20))
    more, validation = synthetic.programs(8, 16, seed=4), synthetic.programs(4, 16, seed=2)
    tuned = fit(start, more, validation, replace(SETTINGS, epochs=1, trees=20), tmp_path / "b").checkpoint
    assert start.trees is not None
    assert tuned.trees is not None
    assert tuned.trees.booster.num_boosted_rounds() == 20 + len(more) // 50 == tuned.card["training"]["trees"]
    assert tuned.trees.scale == start.trees.scale
    tuned.save(tmp_path / "tuned.safetensors")
    assert Checkpoint.load(tmp_path / "tuned.safetensors").trees is not None


def test_fine_tuning_takes_small_steps() -> None:
    new, tuned = (preset_settings("gnn", 400, fine_tuned) for fine_tuned in (False, True))
    assert tuned.learning_rate < new.learning_rate
    assert tuned.epochs < new.epochs
    assert replace(tuned, learning_rate=new.learning_rate, epochs=new.epochs, patience=new.patience) == new


def test_training_learns_the_latency_of_tasks_it_never_saw(tmp_path: Path) -> None:
    test = synthetic.programs(6, 16, seed=3)
    scorer = Scorer(train(tmp_path))
    with torch.inference_mode():
        predicted = scorer.model.score_and_latency(scorer.batch(test.graphs))[1]
    assert predicted is not None
    expected = np.log(1e3 * test.latency)
    assert np.corrcoef(predicted.numpy(), expected)[0, 1] > 0.6  # .69 on one thread, .7 on two
    assert np.abs(predicted.numpy() - expected).mean() < 0.85 * np.abs(expected - expected.mean()).mean()


def test_the_same_seed_gives_the_same_weights_and_does_not_disturb_the_callers(tmp_path: Path) -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    few = replace(SETTINGS, epochs=8)
    one, two = train(tmp_path / "a", few), train(tmp_path / "b", few)
    assert torch.equal(torch.rand(1), expected)
    assert all(torch.equal(one.state[name], two.state[name]) for name in one.state)
    other = train(tmp_path / "c", replace(few, seed=1))
    assert not all(torch.equal(one.state[name], other.state[name]) for name in one.state)


def test_an_interrupted_training_goes_on_where_it_was(tmp_path: Path) -> None:
    programs, validation = synthetic.programs(8, 8, seed=1), synthetic.programs(3, 8, seed=2)
    start = new_checkpoint(SMALL, synthetic.vectors(), programs, seed=0)
    told: list[int] = []

    def interrupt(event: Event) -> None:
        assert isinstance(event, EpochFinished)
        told.append(event.number)
        if event.number == 3 and told.count(3) == 1:
            raise KeyboardInterrupt

    settings = replace(SETTINGS, epochs=6)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        fit(start, programs, validation, settings, tmp_path, interrupt)
    history = fit(start, programs, validation, settings, tmp_path, interrupt).history
    assert set(history) == {"train_loss", "validation_loss", "validation_error"}
    assert {len(values) for values in history.values()} == {6}
    assert told[:3] == [1, 2, 3]
    assert told[3] > 1
    assert told[-1] == 6


def test_processes_that_train_together_share_the_tasks_of_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = synthetic.programs(7, 40, seed=1)
    scorer = Scorer(new_checkpoint(SMALL, synthetic.vectors(), programs, seed=0))

    def steps(rank: int, processes: int) -> list[Step]:
        monkeypatch.setattr("tvm_gnn_cost.training.fit._processes", lambda: (rank, processes))
        return list(TaskBatches(programs, scorer, replace(SETTINGS, tasks_per_batch=3), shuffle=True))

    (alone, *shares) = steps(0, 1), steps(0, 2), steps(1, 2)
    for whole, *parts in zip(alone, *shares, strict=True):
        assert whole.own.tolist() == list(range(len(whole.task)))
        assert sorted(np.concatenate([part.own for part in parts]).tolist()) == whole.own.tolist()
        for part in parts:
            assert all(torch.equal(getattr(part, name), getattr(whole, name)) for name in ("target", "latency", "task"))
            nodes = torch.isin(whole.batch.batch, part.own)
            if len(part.own):
                assert torch.equal(part.batch.x, whole.batch.x[nodes])
    # The last step has one task: the second process has a graph to compute with, and nothing of the step.
    last = shares[1][-1]
    assert (last.batch.num_graphs, len(last.own)) == (32, 0)


@pytest.mark.slow
def test_two_processes_train_the_model_that_one_trains(tmp_path: Path) -> None:
    found = []
    for devices in (1, 2):
        folder = tmp_path / str(devices)
        command = [sys.executable, "-m", "tests.training.train_on_devices", str(devices), str(folder)]
        root, environment = Path(__file__).parents[2], {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=root, env=environment, capture_output=True, text=True, timeout=240)
        assert done.returncode == 0, done.stderr
        assert [path.name for path in folder.glob("*.safetensors")] == ["model.safetensors"]
        found.append(Checkpoint.load(folder / "model.safetensors"))
    one, two = found
    for name, weights in one.state.items():
        torch.testing.assert_close(two.state[name], weights, rtol=1e-3, atol=1e-5, msg=name)
    errors = [checkpoint.card["training"]["validation_error"] for checkpoint in found]
    assert errors[1] == pytest.approx(errors[0], rel=1e-3)
    graphs = synthetic.graphs(30, seed=5)
    np.testing.assert_allclose(Scorer(two).score(graphs), Scorer(one).score(graphs), rtol=1e-3, atol=1e-4)


def test_a_training_from_a_store_gives_the_same_model(tmp_path: Path) -> None:
    programs, validation = synthetic.programs(9, 50, seed=1, failed=3), synthetic.programs(3, 20, seed=2)
    start = new_checkpoint(SMALL, synthetic.vectors(), programs, seed=0)
    few = replace(SETTINGS, epochs=2, trees=5)
    store = GraphStore(tmp_path / "store")
    # Neighbours in the store are not of one task.
    order = np.random.default_rng(0).permutation(len(programs))
    for rows in np.array_split(order, 3):
        store.append(programs.select(rows))
    one = fit(start, store.load(), validation, few, tmp_path / "measured").checkpoint
    assert_same(one, fit(start, store.programs(), validation, few, tmp_path / "stored").checkpoint)


def test_a_large_training_samples_what_must_be_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tvm_gnn_cost.training.fit.SAMPLED", 200)
    monkeypatch.setattr("tvm_gnn_cost.training.fit._VALIDATED", 60)
    programs, validation = synthetic.programs(9, 50, seed=1), synthetic.programs(3, 40, seed=2)
    start = new_checkpoint(SMALL, synthetic.vectors(), programs, seed=0)
    store, validating = GraphStore(tmp_path / "store"), GraphStore(tmp_path / "validation")
    store.append(programs)
    validating.append(validation)
    few = replace(SETTINGS, epochs=2, trees=5)
    one = fit(start, store.programs(), validating.programs(), few, tmp_path / "stored").checkpoint
    assert one.card["training"]["train_programs"] == 450
    assert one.card["training"]["validation_programs"] == 60
    assert_same(one, fit(start, programs, validation, few, tmp_path / "measured").checkpoint)


def assert_same(one: Checkpoint, two: Checkpoint) -> None:
    assert all(torch.equal(one.state[name], two.state[name]) for name in one.state)
    assert one.trees is not None
    assert two.trees is not None
    assert torch.equal(one.trees.to_tensor(), two.trees.to_tensor())
    assert (one.trees.scale, one.calibration) == (two.trees.scale, two.calibration)


def test_training_on_nothing_is_refused(tmp_path: Path) -> None:
    programs = synthetic.programs(2, 4)
    start = new_checkpoint(SMALL, synthetic.vectors(), programs, seed=0)
    with pytest.raises(InputError, match="at least one program"):
        fit(start, programs, programs.select(np.zeros(0, np.int64)), SETTINGS, tmp_path)
    failed = replace(programs, latency=np.full(len(programs), np.inf))
    for one, two in ((failed, programs), (programs, failed)):
        with pytest.raises(InputError, match="every program to train on, or to validate on, failed"):
            fit(start, one, two, SETTINGS, tmp_path)


def test_few_tasks_are_trained_on_for_more_epochs():
    many, few = preset_settings("gnn", 400), preset_settings("gnn", 80)
    assert many == PRESET_SETTINGS["gnn"]
    assert (few.epochs, few.patience) == (48, 29)
    assert few.epochs * 10 == 480


def test_vectors_of_another_length_are_refused() -> None:
    with pytest.raises(InputError, match="node type vectors of length 8, and the model reads 16"):
        new_checkpoint(SMALL, synthetic.vectors(8), synthetic.programs(2, 4), seed=0)


def test_a_new_model_standardises_the_values_that_it_reads() -> None:
    programs = synthetic.programs(4, 8)
    checkpoint = new_checkpoint(replace(SMALL, groups=("loop", "work")), synthetic.vectors(), programs, seed=0)
    used = columns(("loop", "work"))
    assert checkpoint.value_names == tuple(VALUES[i][0] for i in used)
    values = programs.graphs.x[:, used].astype(np.float64)
    np.testing.assert_allclose(checkpoint.state["mean"].numpy(), values.mean(axis=0), atol=1e-6)
    changing = values.std(axis=0) > 0
    np.testing.assert_allclose(checkpoint.state["std"].numpy()[changing], values.std(axis=0)[changing], rtol=1e-5)
    assert np.isinf(checkpoint.state["std"].numpy()[~changing]).all()


def test_a_new_model_reads_the_values_of_gpu_programs_if_there_are_some() -> None:
    programs = synthetic.programs(4, 8)
    cpu = new_checkpoint(SMALL, synthetic.vectors(), programs, seed=0)
    own = {VALUES[i][0] for i in columns(["gpu"])}
    assert "gpu" not in cpu.config.groups
    assert own.isdisjoint(cpu.value_names)
    programs.graphs.x[0, columns(["gpu"])[0]] = 1
    gpu = new_checkpoint(SMALL, synthetic.vectors(), programs, seed=0)
    assert gpu.config == SMALL
    assert own < set(gpu.value_names)
    assert set(gpu.value_names) - own == set(cpu.value_names)


def test_the_card_says_what_was_trained_on(tmp_path: Path) -> None:
    settings = replace(SETTINGS, epochs=1)
    card = train(tmp_path, settings).card["training"]
    numbers = {
        "train_programs": 256,
        "train_tasks": 16,
        "validation_programs": 64,
        "validation_tasks": 4,
    }
    assert card == {**asdict(settings), **numbers, "validation_error": card["validation_error"]}
    assert 0 < card["validation_error"] < 1


def test_only_a_calibrated_preset_is_calibrated(tmp_path: Path) -> None:
    few = replace(SETTINGS, epochs=1)
    assert train(tmp_path / "a", few).calibration != (1.0, 0.0)
    assert train(tmp_path / "b", replace(few, calibrated=False)).calibration == (1.0, 0.0)


def test_a_training_of_ten_steps_ends(tmp_path: Path) -> None:
    # A tenth of ten steps of warm-up would be no time at all.
    assert train(tmp_path, replace(SETTINGS, epochs=10), tasks=2).card["training"]["epochs"] == 10


def test_each_epoch_draws_other_programs_of_a_large_task() -> None:
    programs = synthetic.programs(2, 40, seed=1)
    scorer = Scorer(new_checkpoint(SMALL, synthetic.vectors(), programs, seed=0))
    batches = TaskBatches(programs, scorer, replace(SETTINGS, programs_per_task=8), shuffle=True)
    drawn = []
    for batches.epoch in (0, 1, 0):
        (step,) = list(batches)
        assert torch.bincount(step[3]).tolist() == [8, 8]
        drawn.append(sorted(step[2].tolist()))
    assert drawn[0] == drawn[2] != drawn[1]
    everything = TaskBatches(programs, scorer, replace(SETTINGS, programs_per_task=8), shuffle=False)
    assert [len(step[1]) for step in everything] == [80]


def test_a_step_on_another_device_leaves_nothing_behind() -> None:
    """A training step on a device of its own computes what it computes on the CPU, and reads no tensor of the CPU."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.training.step_on_second_device"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    expected = {
        "batch": ["second:0"],
        "module": ["second:0"],
        "gradients": ["second:0"],
        "same loss": True,
        "same gradients": True,
        "same validation": True,
        "vectors left behind": "aten.index.Tensor reads tensors of two devices",
        "weights left behind": True,
    }
    assert json.loads(done.stdout) == dict.fromkeys(PRESETS, expected)
