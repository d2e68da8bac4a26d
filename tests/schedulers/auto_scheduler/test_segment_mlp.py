from __future__ import annotations

from tvm.meta_schedule.cost_model.mlp_model import SegmentSumMLPConfig, TrainerConfig

from tvm_gnn_cost.datasets.programs import PER_STORE_COLUMNS
from tvm_gnn_cost.schedulers.auto_scheduler.segment_mlp import segment_mlp


def test_it_has_tvms_settings() -> None:
    trainer = segment_mlp(0).trainer
    for name, value in TrainerConfig().to_dict().items():
        assert getattr(trainer, name) == value
    assert trainer.state.model.encoder[0].weight.shape == (SegmentSumMLPConfig().hidden_dim, PER_STORE_COLUMNS)
