"""MetaSchedule's ``MLPModel`` of the installed TVM: trained offline for either scheduler, or in a search."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch

from tvm_gnn_cost.datasets.programs import PER_STORE_COLUMNS
from tvm_gnn_cost.installed import ms
from tvm_gnn_cost.models.tvm_baselines import OfflineMLP, as_tvm_expects


def mlp_baseline(seed: int) -> OfflineMLP:
    """An untrained model with TVM's settings, but for the features of the unscheduled program, which stores lack.

    Those are the same for all programs of a task.

    Args:
        seed: Seed of the weights and of the training.
    """
    tvm_model = _mlp_model()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        state = tvm_model.State(
            tvm_model.SegmentSumMLPConfig(input_dim=PER_STORE_COLUMNS),
            extractor=ms.feature_extractor.PerStoreFeature(),
        )
    return OfflineMLP(tvm_model.SegmentSumMLPTrainer(state=state), seed)


def mlp_search_model(seed: int, trained: OfflineMLP | None = None) -> Any:
    """TVM's ``MLPModel`` with its own settings for a search; its training runs with the installed torch.

    Args:
        seed: Seed of the weights and of the training.
        trained: A model that was trained before the search, which goes on from it.
    """
    tvm_model = _mlp_model()

    class Trainer(tvm_model.SegmentSumMLPTrainer):  # type: ignore[misc,name-defined]
        test_split: float

        def train_full(self) -> None:
            # TVM validates with a share of the tasks, and fails where that is none or all of them.
            tasks = len(self.state.data)
            if tasks > 1:
                self.test_split = max(self.test_split, 1.01 / tasks)
                with as_tvm_expects(seed):
                    super().train_full()

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        trainer = Trainer(state=None if trained is None else trained.trainer.state)
    return tvm_model.MLPModel(trainer=trainer)


def _mlp_model() -> Any:
    return import_module(f"{ms.__name__}.cost_model.mlp_model")
