"""TVM's learned cost models as baselines, trained on TVM's per-store features of stored programs.

Each of TVM's schedulers has an XGBoost model with labels, a packing of stores, an objective and settings of its own;
these are in ``tvm_gnn_cost.schedulers``. The MLP is TenSet's segment-sum MLP with TVM's network, loss and training
(``cost_model/mlp_model.py``, after Zheng et al. 2021, "TenSet").
``models.buffer_store_trees`` has the trees of this package.
"""

from __future__ import annotations

import os
import random
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import torch
import xgboost

from tvm_gnn_cost.datasets.programs import PER_STORE_COLUMNS, MeasuredPrograms, with_features
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import replacing

#: Per-store features: for each program a matrix float32[stores, 164].
Matrices = Sequence[npt.NDArray[np.float32]]


class OfflineXGB(ABC):
    """An XGBoost cost model that is trained on stored programs instead of during a search.

    Attributes:
        card: The training data, as JSON; empty for a model that was loaded.
    """

    card: Mapping[str, Any] = MappingProxyType({})

    @abstractmethod
    def train(self, features: Matrices, throughput: npt.NDArray[np.float32], task: npt.NDArray[np.int32]) -> None:
        """Trains on P programs as TVM does, given relative throughput float32[P] and task numbers int32[P]."""

    @abstractmethod
    def predict_throughput(self, features: Matrices) -> npt.NDArray[np.float64]:
        """Predicts the relative throughput of P programs: float64[P]."""

    @property
    @abstractmethod
    def booster(self) -> xgboost.Booster:
        """XGBoost's model."""

    @booster.setter
    @abstractmethod
    def booster(self, booster: xgboost.Booster) -> None:
        """Replaces XGBoost's model."""

    def fit(self, programs: MeasuredPrograms) -> None:
        """Trains on all programs that have features; failed programs have throughput 0, as in TVM.

        Raises:
            InputError: the programs have no per-store features.
        """
        features, rows = with_features(programs)
        self.card = {"training": {"train_programs": len(programs)}}
        self.train([features[i] for i in rows], programs.throughput()[rows], programs.task[rows])

    def predict(self, programs: MeasuredPrograms) -> npt.NDArray[np.float64]:
        """Predicts the relative throughput of P programs: float64[P]; 0 for a program without features.

        Raises:
            InputError: the programs have no per-store features.
        """
        features, rows = with_features(programs)
        out = np.zeros(len(programs))
        out[rows] = self.predict_throughput([features[i] for i in rows])
        return out

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes XGBoost's model atomically: as JSON if the name ends in ``.json``, else as UBJSON."""
        path = Path(path)
        with replacing(path) as unfinished:
            unfinished.write_bytes(self.booster.save_raw("json" if path.suffix == ".json" else "ubj"))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Reads a model that :meth:`save` or TVM's own cost model wrote.

        Raises:
            InputError: the file is missing or damaged, or is not a model of per-store features.
        """
        path = Path(path)
        if not path.is_file():
            raise InputError(f"{path}: there is no such file; 'tvm-gnn-cost train --model xgb' makes one")
        booster = xgboost.Booster()
        try:
            booster.load_model(path)
        except (xgboost.core.XGBoostError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: not a model file of XGBoost ({str(error).splitlines()[0]})") from error
        if booster.num_features() != PER_STORE_COLUMNS:
            raise InputError(
                f"{path}: a model of {booster.num_features()} features, not of TVM's {PER_STORE_COLUMNS} per-store ones"
            )
        model = cls()
        model.booster = booster
        return model


#: TVM's latency of a program that failed, in seconds.
_FAILED_S = 1e10


class OfflineMLP:
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
            members = [i for i in rows if programs.task[i] == task]
            latency = np.minimum(programs.latency[members], _FAILED_S).astype(np.float32)
            self.trainer.state.add_to_group([features[i] for i in members], latency, str(task))
        # TVM would validate with no task where there are fewer than five, and fail.
        self.trainer.test_split = max(self.trainer.test_split, 1.01 / len(self.trainer.state.data))
        with as_tvm_expects(self.seed):
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
            members = [i for i in rows if programs.task[i] == task]
            # TVM's scores of a batch of one program have no axis, and it cannot join them with others.
            scored = members + members[-1:] * (len(members) % self.trainer.batch_size == 1)
            with torch.inference_mode():
                out[members] = self.trainer.predict_incremental([features[i] for i in scored])[: len(members)]
        out[np.isneginf(out)] = out[rows].min() if rows else 0.0
        return out


@contextmanager
def as_tvm_expects(seed: int) -> Iterator[None]:
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
