from __future__ import annotations

from importlib import import_module

import pytest

from tvm_gnn_cost.datasets.programs import PER_STORE_COLUMNS

pytestmark = pytest.mark.needs("tvm")


def test_it_has_tvms_settings() -> None:
    from tvm_gnn_cost.installed import ms
    from tvm_gnn_cost.schedulers.segment_mlp import segment_mlp

    theirs = import_module(f"{ms.__name__}.cost_model.mlp_model")
    trainer = segment_mlp(0).trainer
    for name, value in theirs.TrainerConfig().to_dict().items():
        assert getattr(trainer, name) == value
    assert trainer.state.model.encoder[0].weight.shape == (theirs.SegmentSumMLPConfig().hidden_dim, PER_STORE_COLUMNS)
