from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.tpugraphs.prepared import SETTINGS, prepared, small
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tpugraphs.ranking.ensemble import folds, load_rankers, train_ensemble
from tvm_gnn_cost.tpugraphs.ranking.ranker import Ranker
from tvm_gnn_cost.tpugraphs.settings import EnsembleSettings

FAST = replace(SETTINGS, epochs=2, patience=2)


def test_the_best_folds_are_kept_and_finished_ones_are_not_trained_again(tmp_path: Path):
    graphs = prepared(tmp_path, "layout", 6)
    told: list[int] = []

    def train() -> list:
        told.clear()
        return train_ensemble(
            "layout:xla:random",
            "tgraph",
            small("tgraph", "layout"),
            graphs,
            FAST,
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
    # What a run leaves that is killed when it has saved a model.
    (tmp_path / "models" / "fold-0.fit").mkdir()
    (tmp_path / "models" / "fold-0.fit" / "last.ckpt").write_text("")
    train()
    assert told == [1, 1]
    assert not list((tmp_path / "models").glob("*.fit"))


def test_models_that_were_trained_otherwise_are_not_taken_for_others(tmp_path: Path):
    graphs = prepared(tmp_path, "layout", 6)
    tgraph = small("tgraph", "layout")
    three = EnsembleSettings(folds=3, trained=1, kept=1)

    def train(collection="layout:xla:random", config=tgraph, of=graphs, settings=FAST, ensemble=three) -> list:
        return train_ensemble(collection, "tgraph", config, of, settings, ensemble, tmp_path / "models")

    (ranker,) = train()
    assert ranker.card["collection"] == "layout:xla:random"
    slower = [replace(graph, runtime=2 * graph.runtime) for graph in graphs]
    for what, changes in (
        ("another collection", {"collection": "layout:xla:default"}),
        ("another model", {"config": replace(tgraph, edges=False)}),
        ("other settings", {"settings": replace(FAST, learning_rate=1e-4)}),
        ("other folds", {"ensemble": EnsembleSettings(folds=2, trained=1, kept=1)}),
        ("other data", {"of": slower}),
    ):
        with pytest.raises(InputError, match=rf"fold-0\.safetensors was trained on or with {what}; choose another"):
            train(**changes)
    (again,) = load_rankers(tmp_path / "models")
    assert again.card == ranker.card


@pytest.mark.parametrize("content", [None, "{", "[]", "{}", "[3]", b"\xff"])
def test_a_folder_without_a_finished_training_is_named(content: str | bytes | None, tmp_path: Path):
    if content is not None:
        (tmp_path / "kept.json").write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(InputError, match="holds no finished training"):
        load_rankers(tmp_path)


def test_a_file_that_has_no_card_is_no_finished_fold(tmp_path: Path):
    graphs = prepared(tmp_path, "layout", 3)
    config = small("gru", "layout")
    three = EnsembleSettings(folds=3, trained=1, kept=1)
    settings = replace(FAST, loss="runtime")
    (ranker,) = train_ensemble("layout:xla:random", "gru", config, graphs, settings, three, tmp_path / "models")
    replace(ranker, card={"collection": "layout:xla:random"}).save(tmp_path / "models" / "fold-0.safetensors")
    assert Ranker.load(tmp_path / "models" / "fold-0.safetensors").training == {}
    with pytest.raises(InputError, match="was trained on or with other settings"):
        train_ensemble("layout:xla:random", "gru", config, graphs, settings, three, tmp_path / "models")


def test_every_graph_validates_once(tmp_path: Path):
    graphs = prepared(tmp_path, "tile", 7)
    parts = folds(graphs, 3, seed=0)
    assert sorted(graph.name for _, valid in parts for graph in valid) == [graph.name for graph in graphs]
    for train, valid in parts:
        assert {graph.name for graph in train}.isdisjoint(graph.name for graph in valid)
        assert len(train) + len(valid) == 7
    with pytest.raises(InputError, match="8 folds of 7 graphs"):
        folds(graphs, 8, seed=0)
