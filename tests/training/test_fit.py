from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from tests import synthetic
from tvm_gnn_cost.evaluation.metrics import evaluate
from tvm_gnn_cost.models.topk_gnn import PRESETS
from tvm_gnn_cost.training.checkpoint import Checkpoint, Scorer
from tvm_gnn_cost.training.fit import PRESET_SETTINGS, FitSettings, TaskBatches, fit, new_checkpoint, preset_settings

SMALL = replace(PRESETS["gnn"], hidden=16, layers=2, head=(16,))
SETTINGS = FitSettings(epochs=40, patience=40, tasks_per_batch=2, learning_rate=5e-3)


def train(folder: Path, settings: FitSettings = SETTINGS) -> Checkpoint:
    programs = synthetic.programs(16, 16, seed=1, failed=3)
    start = new_checkpoint(SMALL, synthetic.vectors(), programs, seed=0)
    return fit(start, programs, synthetic.programs(4, 16, seed=2), settings, folder)


def test_training_learns_to_rank_tasks_it_never_saw(tmp_path: Path) -> None:
    test = synthetic.programs(6, 16, seed=3)
    untrained = Scorer(new_checkpoint(SMALL, synthetic.vectors(), test, seed=0)).score(test.graphs)
    trained = Scorer(train(tmp_path)).score(test.graphs)
    before, after = (evaluate(test, s, s, ("net0", "net1"))[0]["pairwise_accuracy"] for s in (untrained, trained))
    assert after > 0.8
    assert after > before + 0.1


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

    def interrupt(epoch: int, _metrics: dict[str, float]) -> None:
        told.append(epoch)
        if epoch == 3 and told.count(3) == 1:
            raise KeyboardInterrupt

    settings = replace(SETTINGS, epochs=6)
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        fit(start, programs, validation, settings, tmp_path, interrupt)
    fit(start, programs, validation, settings, tmp_path, interrupt)
    assert told[:3] == [1, 2, 3]
    assert told[3] > 1
    assert told[-1] == 6


def test_processes_that_train_together_share_the_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    programs = synthetic.programs(7, 4, seed=1)
    scorer = Scorer(new_checkpoint(SMALL, synthetic.vectors(), programs, seed=0))
    seen: list[list[frozenset[int]]] = []
    for rank in range(2):
        monkeypatch.setattr("tvm_gnn_cost.training.fit._processes", lambda rank=rank: (rank, 2))
        batches = TaskBatches(programs, scorer, SETTINGS, shuffle=True)
        seen.append([frozenset(task.tolist()) for _, _, _, task in batches])
        assert len(seen[rank]) == len(batches) == 2
    assert frozenset().union(*seen[0], *seen[1]) == set(range(7))
    assert not set(seen[0]) & set(seen[1])


def test_a_checkpoint_scores_the_same_after_a_round_trip(tmp_path: Path) -> None:
    checkpoint = train(tmp_path, replace(SETTINGS, epochs=1))
    checkpoint.save(tmp_path / "model.safetensors")
    loaded = Checkpoint.load(tmp_path / "model.safetensors")
    population = synthetic.graphs(9, seed=7)
    np.testing.assert_array_equal(Scorer(checkpoint).score(population), Scorer(loaded).score(population))
    assert loaded.card["training"]["train_programs"] == 16 * 16
    assert loaded.config == SMALL


def test_what_is_not_a_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"missing\.safetensors: there is no such checkpoint"):
        Checkpoint.load(tmp_path / "missing.safetensors")
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(b"\x80\x04. not a pickle either")
    with pytest.raises(ValueError, match=r"broken\.safetensors: not a checkpoint"):
        Checkpoint.load(broken)
    checkpoint = new_checkpoint(SMALL, synthetic.vectors(), synthetic.programs(2, 4), seed=0)
    checkpoint.save(tmp_path / "cut.safetensors")
    whole = (tmp_path / "cut.safetensors").read_bytes()
    (tmp_path / "cut.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"cut\.safetensors: not a checkpoint"):
        Checkpoint.load(tmp_path / "cut.safetensors")
    replace(checkpoint, value_names=("wings", *checkpoint.value_names[1:])).save(tmp_path / "old.safetensors")
    with pytest.raises(ValueError, match="node value 'wings'"):
        Scorer(Checkpoint.load(tmp_path / "old.safetensors"))


def test_training_on_nothing_is_refused(tmp_path: Path) -> None:
    programs = synthetic.programs(2, 4)
    start = new_checkpoint(SMALL, synthetic.vectors(), programs, seed=0)
    with pytest.raises(ValueError, match="at least one program"):
        fit(start, programs, programs.select(np.zeros(0, np.int64)), SETTINGS, tmp_path)


def test_few_tasks_are_trained_on_for_more_epochs():
    many, few = preset_settings("gnn", 400), preset_settings("gnn", 80)
    assert many == PRESET_SETTINGS["gnn"]
    assert (few.epochs, few.patience) == (48, 29)
    assert few.epochs * 10 == 480
