from __future__ import annotations

import pytest

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
