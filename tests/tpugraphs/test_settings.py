from __future__ import annotations

from typing import Any

import pytest

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tpugraphs.format.collections import COLLECTIONS
from tvm_gnn_cost.tpugraphs.models.cheb_sage import ChebSageConfig
from tvm_gnn_cost.tpugraphs.models.configured_graph import EncoderConfig
from tvm_gnn_cost.tpugraphs.models.gru import GRUConfig
from tvm_gnn_cost.tpugraphs.models.rank_classes import RankClassesConfig
from tvm_gnn_cost.tpugraphs.models.tgraph import TGraphConfig
from tvm_gnn_cost.tpugraphs.ranking.ranker import MODELS
from tvm_gnn_cost.tpugraphs.settings import MODEL_LOSS, EnsembleSettings, RankerSettings, recipe, with_options


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


@pytest.mark.parametrize(
    "values", [("32", "false", "sum", "0.5", "listmle", "2"), (32, False, "sum", 0.5, "listmle", 2)]
)
def test_fields_of_both_are_replaced_and_the_rest_stays(values: tuple[Any, ...]):
    names = ("channels", "cross_attention", "aggregation", "weight_decay", "loss", "devices")
    config, settings = with_options(dict(zip(names, values, strict=True)), TGraphConfig(), RankerSettings(seed=7))
    assert config == TGraphConfig(channels=32, cross_attention=False, aggregation="sum")
    assert settings == RankerSettings(seed=7, weight_decay=0.5, loss="listmle", devices=2)
    assert with_options({"devices": "auto"}, RankerSettings()) == (RankerSettings(devices="auto"),)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"channels": None}, "setting channels: expected NAME=VALUE with one of the names: kind, channels"),
        ({"chanels": "3"}, "setting chanels=3: expected NAME=VALUE with one of the names: kind, channels"),
        ({"channels": "three"}, "setting channels=three: expected an integer"),
        ({"channels": 2.5}, "setting channels=2.5: expected an integer"),
        ({"warm_up": "x"}, "setting warm_up=x: expected a number"),
        ({"edges": "no"}, "setting edges=no: expected one of: true, false"),
        ({"aggregation": "max"}, "setting aggregation=max: expected one of: mean, sum"),
    ],
)
def test_mistakes_are_named(changes: dict[str, Any], message: str):
    with pytest.raises(InputError, match=message):
        with_options(changes, TGraphConfig(), RankerSettings())


def test_fixed_fields_can_not_be_changed():
    with pytest.raises(InputError, match="setting seed=3: expected NAME=VALUE with one of the names: kind, channels"):
        with_options({"seed": 3}, TGraphConfig(), RankerSettings(), fixed=("seed",))


@pytest.mark.parametrize(
    ("config", "name", "value", "message"),
    [
        (TGraphConfig(), "squeeze", "0", "squeeze is 0; expected 1 or more"),
        (TGraphConfig(), "channels", "7", "channels is 7; with cross attention, expected an even number"),
        (ChebSageConfig(), "order", "0", "order is 0; expected 1 or more"),
        (GRUConfig(), "layers", "0", "layers is 0"),
        (RankClassesConfig(), "waves", "0", "waves is 0"),
        (TGraphConfig(), "unknown_opcodes", "1", "unknown_opcodes is 1.0; expected a share below 1"),
        (TGraphConfig(), "validation_configs", "0", "validation_configs is 0; expected 2 or more"),
        (TGraphConfig(), "learning_rate", "nan", "learning_rate is nan; expected more than 0"),
        (TGraphConfig(), "warm_up", "1", "warm_up is 1.0; expected a share below 1"),
    ],
)
def test_changed_values_that_can_not_be_are_named(config: EncoderConfig, name: str, value: str, message: str):
    with pytest.raises(InputError, match=message):
        with_options({name: value}, config, RankerSettings())
