"""A baseline: TVM's ``MLPModel``, TenSet's segment-sum MLP on per-store features, trained on stored programs.

The network, its loss and its training are TVM's own (``cost_model/mlp_model.py``, after Zheng et al. 2021, "TenSet").
"""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import torch

from tvm_gnn_cost.datasets.programs import MeasuredPrograms, with_features

#: TVM's latency of a program that failed, in seconds.
_FAILED_S = 1e10


class SegmentMLP:
    """TVM's ``MLPModel`` without a search.

    Args:
        trainer: TVM's ``SegmentSumMLPTrainer``, with its model.
        seed: Seeds the order of the programs and the choice of those that it validates with.
    """

    def __init__(self, trainer: Any, seed: int) -> None:
        self.trainer, self.seed = trainer, seed

    def fit(self, programs: MeasuredPrograms) -> None:
        """Trains on all programs that have features, of two tasks at least; TVM validates with a fifth of the tasks.

        Raises:
            InputError: the programs have no per-store features.
        """
        features, rows = with_features(programs)
        for task in np.unique(programs.task[rows]).tolist():
            own = [i for i in rows if programs.task[i] == task]
            latency = np.minimum(programs.latency[own], _FAILED_S).astype(np.float32)
            self.trainer.state.add_to_group([features[i] for i in own], latency, str(task))
        # TVM would validate with no task where there are fewer than five, and fail.
        self.trainer.test_split = max(self.trainer.test_split, 1.01 / len(self.trainer.state.data))
        with _as_tvm_expects(self.seed):
            self.trainer.train_full()

    def predict(self, programs: MeasuredPrograms) -> npt.NDArray[np.float64]:
        """Scores of P programs, higher is faster: float64[P]; the least score for a program without features.

        The programs of a task are scored together, as in a search: TVM divides features by the largest of a call.

        Raises:
            InputError: the programs have no per-store features.
        """
        features, rows = with_features(programs)
        out = np.full(len(programs), -np.inf)
        for task in np.unique(programs.task[rows]).tolist():
            own = [i for i in rows if programs.task[i] == task]
            with torch.inference_mode():
                out[own] = np.atleast_1d(self.trainer.predict_incremental([features[i] for i in own]))
        out[np.isneginf(out)] = out[rows].min() if rows else 0.0
        return out


@contextmanager
def _as_tvm_expects(seed: int) -> Iterator[None]:
    """Seeds the training, which writes into the temporary folder, and keeps it from failing in today's torch."""
    step_lr, state = torch.optim.lr_scheduler.StepLR, random.getstate()

    # TVM passes an argument that torch has dropped.
    def without_verbose(*args: Any, verbose: bool = False, **kwargs: Any) -> Any:  # noqa: ARG001
        return step_lr(*args, **kwargs)

    try:
        with (
            torch.random.fork_rng(devices=[]),
            tempfile.TemporaryDirectory() as folder,
            patch.object(tempfile, "tempdir", folder),
            patch.object(torch.optim.lr_scheduler, "StepLR", without_verbose),
        ):
            random.seed(seed)
            torch.manual_seed(seed)
            yield
    finally:
        random.setstate(state)
