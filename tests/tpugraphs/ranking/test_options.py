from __future__ import annotations

from typing import Any

import pytest

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.tpugraphs.models.cheb_sage import ChebSageConfig
from tvm_gnn_cost.tpugraphs.models.configured_graph import EncoderConfig
from tvm_gnn_cost.tpugraphs.models.gru import GRUConfig
from tvm_gnn_cost.tpugraphs.models.rank_classes import RankClassesConfig
from tvm_gnn_cost.tpugraphs.models.tgraph import TGraphConfig
from tvm_gnn_cost.tpugraphs.ranking.options import with_options
from tvm_gnn_cost.tpugraphs.settings import RankerSettings


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
        ({"channels": "three"}, "setting channels=three: expected a whole number"),
        ({"channels": 2.5}, "setting channels=2.5: expected a whole number"),
        ({"warm_up": "x"}, "setting warm_up=x: expected a number"),
        ({"edges": "no"}, "setting edges=no: expected one of: true, false"),
        ({"aggregation": "max"}, "setting aggregation=max: expected one of: mean, sum"),
    ],
)
def test_mistakes_are_named(changes: dict[str, Any], message: str):
    with pytest.raises(InputError, match=message):
        with_options(changes, TGraphConfig(), RankerSettings())


def test_what_is_set_in_another_way_is_no_name():
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
def test_values_that_can_not_be_are_named(config: EncoderConfig, name: str, value: str, message: str):
    with pytest.raises(InputError, match=message):
        with_options({name: value}, config, RankerSettings())
