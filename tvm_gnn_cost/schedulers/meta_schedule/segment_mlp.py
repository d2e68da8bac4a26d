"""MetaSchedule's ``MLPModel``, trained offline."""

from __future__ import annotations

import torch
from tvm.s_tir.meta_schedule.cost_model.mlp_model import SegmentSumMLPConfig, SegmentSumMLPTrainer, State

from tvm_gnn_cost.datasets.programs import PER_STORE_COLUMNS
from tvm_gnn_cost.models.segment_mlp import SegmentMLP


def segment_mlp(seed: int) -> SegmentMLP:
    """An untrained model with TVM's settings, but for the features of the unscheduled program, which stores lack.

    Those are the same for all programs of a task.

    Args:
        seed: Seed of the weights and of the training.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        state = State(SegmentSumMLPConfig(input_dim=PER_STORE_COLUMNS))
    return SegmentMLP(SegmentSumMLPTrainer(state=state), seed)
