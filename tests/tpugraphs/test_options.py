from __future__ import annotations

import pytest

from tvm_gnn_cost.models.cheb_sage import ChebSageConfig
from tvm_gnn_cost.models.configured_graph import EncoderConfig
from tvm_gnn_cost.models.gru import GRUConfig
from tvm_gnn_cost.models.rank_classes import RankClassesConfig
from tvm_gnn_cost.models.tgraph import TGraphConfig
from tvm_gnn_cost.tpugraphs.fit import FitSettings
from tvm_gnn_cost.tpugraphs.options import with_options


def test_fields_of_both_are_replaced_and_the_rest_stays():
    given = ["channels=32", "cross_attention=false", "aggregation=sum", "weight_decay=0.5", "loss=listmle"]
    config, settings = with_options([*given, "devices=2"], TGraphConfig(), FitSettings(seed=7))
    assert config == TGraphConfig(channels=32, cross_attention=False, aggregation="sum")
    assert settings == FitSettings(seed=7, weight_decay=0.5, loss="listmle", devices=2)
    assert with_options(["devices=auto"], FitSettings()) == (FitSettings(devices="auto"),)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("channels", "expected NAME=VALUE with one of the names: kind, channels"),
        ("chanels=3", "expected NAME=VALUE"),
        ("channels=three", "--set channels=three: expected a whole number"),
        ("warm_up=x", "expected a number"),
        ("edges=no", "expected one of: true, false"),
        ("aggregation=max", "expected one of: mean, sum"),
    ],
)
def test_mistakes_are_named(text: str, message: str):
    with pytest.raises(ValueError, match=message):
        with_options([text], TGraphConfig(), FitSettings())


def test_what_is_set_in_another_way_is_no_name():
    with pytest.raises(ValueError, match="--set seed=3: expected NAME=VALUE with one of the names: kind, channels"):
        with_options(["seed=3"], TGraphConfig(), FitSettings(), fixed=("seed",))


@pytest.mark.parametrize(
    ("config", "text", "message"),
    [
        (TGraphConfig(), "squeeze=0", "squeeze is 0; expected 1 or more"),
        (TGraphConfig(), "channels=7", "channels is 7; with cross attention, expected an even number"),
        (ChebSageConfig(), "order=0", "order is 0; expected 1 or more"),
        (GRUConfig(), "layers=0", "layers is 0"),
        (RankClassesConfig(), "waves=0", "waves is 0"),
        (TGraphConfig(), "unknown_opcodes=1", "unknown_opcodes is 1.0; expected a share below 1"),
        (TGraphConfig(), "validation_configs=0", "validation_configs is 0; expected 2 or more"),
        (TGraphConfig(), "learning_rate=nan", "learning_rate is nan; expected more than 0"),
        (TGraphConfig(), "warm_up=1", "warm_up is 1.0; expected a share below 1"),
    ],
)
def test_values_that_can_not_be_are_named(config: EncoderConfig, text: str, message: str):
    with pytest.raises(ValueError, match=message):
        with_options([text], config, FitSettings())
