"""MetaSchedule's ``MLPModel`` of the installed TVM, trained offline on the per-store features of either scheduler."""

from __future__ import annotations

from importlib import import_module

import torch

from tvm_gnn_cost.datasets.programs import PER_STORE_COLUMNS
from tvm_gnn_cost.installed import ms
from tvm_gnn_cost.models.segment_mlp import SegmentMLP


def segment_mlp(seed: int) -> SegmentMLP:
    """An untrained model with TVM's settings, but for the features of the unscheduled program, which stores lack.

    Those are the same for all programs of a task.

    Args:
        seed: Seed of the weights and of the training.
    """
    tvm_model = import_module(f"{ms.__name__}.cost_model.mlp_model")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        state = tvm_model.State(tvm_model.SegmentSumMLPConfig(input_dim=PER_STORE_COLUMNS))
    return SegmentMLP(tvm_model.SegmentSumMLPTrainer(state=state), seed)
