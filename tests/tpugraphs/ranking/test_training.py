from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.tpugraphs.trained import COLLECTION, Example
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.progress import Advanced, EpochFinished, Event
from tvm_gnn_cost.tpugraphs.ranking.training import train
from tvm_gnn_cost.tpugraphs.settings import EnsembleSettings

FEW = EnsembleSettings(folds=4, trained=2, kept=1)


def options(**changes: Any) -> dict[str, Any]:
    return {"epochs": 1, "changes": {"channels": 16}, "ensemble": FEW, **changes}


def test_the_models_and_their_errors_are_returned(example: Example):
    found = example.trained
    assert (found.graphs, found.folders) == (4, {0: example.models})
    ((ranker,),) = found.rankers.values()
    assert found.validation_errors == {0: [ranker.training["validation_error"]]}
    assert str(found) == f"{example.models}: 1 models kept, validation errors {found.validation_errors[0][0]:.3f}"
    assert (ranker.config.kind, ranker.config.channels) == ("layout", 16)
    # The recipe's, but for what was changed.
    assert (ranker.training["epochs"], ranker.training["patience"], ranker.configs_per_step) == (2, 2, 128)
    (kept,) = json.loads((example.models / "kept.json").read_text())
    assert kept in {path.name for path in example.models.glob("fold-*.safetensors")}


def test_several_seeds_have_folders_of_their_own_and_epochs_are_counted_through(example: Example, tmp_path: Path):
    events: list[Event] = []
    given = options(model="gru", seeds=[3, 4, 3], configs_per_step=8, progress=events.append)
    found = train(example.prepared, COLLECTION, tmp_path, **given)
    assert found.folders == {3: tmp_path / "seed-3", 4: tmp_path / "seed-4"}
    assert (tmp_path / "seed-4" / "kept.json").is_file()
    assert [one.training["seed"] for some in found.rankers.values() for one in some] == [3, 4]
    assert {one.configs_per_step for some in found.rankers.values() for one in some} == {8}
    assert events[0] == Advanced(0, 4)
    assert [event.number for event in events[1:] if isinstance(event, EpochFinished)] == [1, 2, 3, 4]
    assert all("validation_error" in event.metrics for event in events[1:] if isinstance(event, EpochFinished))


def test_mistakes_are_named_before_anything_is_trained(example: Example, tmp_path: Path):
    for collection, changes, message in (
        ("layout", {}, "unknown collection 'layout'"),
        (COLLECTION, {"model": "tgraf"}, "unknown model 'tgraf'"),
        (COLLECTION, {"splits": ["train", "vaild"]}, "unknown split 'vaild'; one of: train, valid, test"),
        (COLLECTION, {"changes": {"kind": "tile"}}, "setting kind=tile: expected NAME=VALUE"),
        (COLLECTION, {"changes": {"epochs": 3}}, "setting epochs=3: expected NAME=VALUE"),
        (COLLECTION, {"epochs": 0}, "epochs is 0; expected 1 or more"),
        (COLLECTION, {"seeds": []}, "seeds is empty; expected at least one seed"),
        (COLLECTION, {"ensemble": None}, "20 folds of 4 graphs"),
    ):
        with pytest.raises(InputError, match=message):
            train(example.prepared, collection, tmp_path / "models", **options(**changes))
    with pytest.raises(FileNotFoundError, match="holds no prepared graph of tile:xla, train or valid"):
        train(example.prepared, "tile:xla", tmp_path / "models")
    assert not (tmp_path / "models").exists()
