from __future__ import annotations

from typing import Any

import pytest

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tpugraphs.format.collections import COLLECTIONS
from tvm_gnn_cost.tpugraphs.ranking.ranker import MODELS
from tvm_gnn_cost.tpugraphs.settings import MODEL_LOSS, EnsembleSettings, RankerSettings, recipe


def test_the_recipe_of_each_collection():
    found = {name: recipe(name, "tgraph", 3) for name in COLLECTIONS}
    assert {name: (one.epochs, one.patience, one.configs_per_step) for name, one in found.items()} == {
        "layout:xla:random": (750, 750, 128),
        "layout:xla:default": (750, 750, 64),
        "layout:nlp:random": (1000, 1000, 128),
        "layout:nlp:default": (1000, 1000, 64),
        "tile:xla": (18, 18, 64),
    }
    assert {one.seed for one in found.values()} == {3}
    assert recipe("tile:xla", "gru", 0).loss == "runtime"


def test_each_model_has_a_recipe_and_no_other():
    assert list(MODEL_LOSS) == list(MODELS)
    with pytest.raises(InputError, match="unknown model 'tgraf'; one of: tgraph, cheb-sage, rank-classes, gru"):
        recipe("tile:xla", "tgraf")
    with pytest.raises(InputError, match="unknown collection 'tile'"):
        recipe("tile", "tgraph")


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (RankerSettings, {"epochs": 0}, "epochs is 0; expected 1 or more"),
        (RankerSettings, {"configs_per_step": 1}, "configs_per_step is 1; expected 2 or more"),
        (RankerSettings, {"seed": -1}, "seed is -1; expected 0 or more"),
        (RankerSettings, {"weight_decay": float("nan")}, "weight_decay is nan; expected 0 or more"),
        (RankerSettings, {"gradient_clip": 0.0}, "gradient_clip is 0.0; expected more than 0"),
        (RankerSettings, {"warm_up": -0.1}, "warm_up is -0.1; expected a share below 1"),
        (EnsembleSettings, {"folds": 1}, "folds is 1; expected 2 or more"),
        (EnsembleSettings, {"kept": 0}, "kept is 0; expected 1 or more"),
    ],
)
def test_values_that_can_not_be_are_named(kind: Any, changes: dict[str, Any], message: str):
    with pytest.raises(InputError, match=message):
        kind(**changes)
