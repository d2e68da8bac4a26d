from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.tpugraphs.test_fit import SETTINGS, prepared, small
from tvm_gnn_cost.tpugraphs.ensemble import EnsembleSettings, load_rankers, train_ensemble

FAST = replace(SETTINGS, epochs=2, patience=2)


def test_the_best_folds_are_kept_and_finished_ones_are_not_trained_again(tmp_path: Path):
    graphs = prepared(tmp_path, "layout", 6)
    told: list[int] = []

    def train(settings=FAST) -> list:
        told.clear()
        return train_ensemble(
            "tgraph",
            small("tgraph", "layout"),
            graphs,
            settings,
            EnsembleSettings(folds=6, trained=3, kept=2),
            tmp_path / "models",
            lambda fold, _epoch, _metrics: told.append(fold),
        )

    kept = train()
    assert told == [0, 0, 1, 1, 2, 2]
    errors = [ranker.card["training"]["validation_error"] for ranker in kept]
    assert len(kept) == 2
    assert errors == sorted(errors)
    assert sorted(path.name for path in (tmp_path / "models").iterdir()) == [
        *(f"fold-{number}.safetensors" for number in range(3)),
        "kept.json",
    ]
    validated = [ranker.card["training"]["validation_graphs"] for ranker in load_rankers(tmp_path / "models")]
    assert validated == [ranker.card["training"]["validation_graphs"] for ranker in kept]
    assert len(load_rankers(tmp_path / "models" / "fold-0.safetensors")) == 1

    (tmp_path / "models" / "fold-1.safetensors").unlink()
    train()
    assert told == [1, 1]
    train(replace(FAST, learning_rate=1e-4))
    assert told == [0, 0, 1, 1, 2, 2]


def test_a_folder_without_a_finished_training_is_named(tmp_path: Path):
    with pytest.raises(ValueError, match="no finished training is there"):
        load_rankers(tmp_path)
