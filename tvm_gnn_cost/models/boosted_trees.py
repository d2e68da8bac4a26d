"""The baseline: TVM's XGBoost cost model, trained on TVM's per-store features of stored programs.

Each of TVM's schedulers has labels, a packing of stores, an objective and settings of its own; these are in
``tvm_gnn_cost.schedulers``. This module has the rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import xgboost

from tvm_gnn_cost.datasets.programs import PER_STORE_COLUMNS, MeasuredPrograms, with_features
from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.files import replacing

#: Per-store features: for each program a matrix float32[stores, 164].
Matrices = Sequence[npt.NDArray[np.float32]]


class BoostedTrees(ABC):
    """An XGBoost cost model that is trained on stored programs instead of during a search."""

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

    def save(self, path: Path) -> None:
        """Writes XGBoost's model atomically: as JSON if the name ends in ``.json``, else as UBJSON."""
        with replacing(path) as unfinished:
            unfinished.write_bytes(self.booster.save_raw("json" if path.suffix == ".json" else "ubj"))

    def load(self, path: Path) -> None:
        """Reads a model that :meth:`save` or TVM's own cost model wrote.

        Raises:
            InputError: the file is missing or damaged, or is not a model of per-store features.
        """
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
        self.booster = booster
