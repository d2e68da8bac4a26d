"""MetaSchedule's XGBoost cost model, trained offline."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import xgboost
from tvm.s_tir.meta_schedule.cost_model import XGBModel
from tvm.s_tir.meta_schedule.cost_model.xgb_model import XGBConfig

from tvm_gnn_cost.models.tvm_baselines import Matrices, OfflineXGB

#: Stores of a program that TVM can train on among many others of fewer.
MOST_STORES = 8


class XGBBaseline(OfflineXGB):
    """MetaSchedule's ``XGBModel`` with its labels, objective and settings.

    Args:
        seed: Seed of XGBoost.
        most_stores: Programs of more stores do not train it.
        model: TVM's model, maybe trained; a new one if None.
    """

    def __init__(self, seed: int = 0, most_stores: int = MOST_STORES, model: XGBModel | None = None) -> None:
        self.model = XGBModel(config=XGBConfig(seed=seed), verbose_eval=0) if model is None else model
        self.most_stores = most_stores

    def train(self, features: Matrices, throughput: npt.NDArray[np.float32], _task: npt.NDArray[np.int32]) -> None:
        """Trains as TVM does, which ranks the programs of all tasks together; without programs of many stores.

        TVM adds up a program's stores and steps along the gradient of the sum: where many stores end in one leaf, the
        steps overshoot more and more, and after 20 such programs among 5,800 the model ranks by chance.
        """
        rows = [i for i, matrix in enumerate(features) if len(matrix) <= self.most_stores]
        with _quiet():
            self.model._train([features[i] for i in rows], throughput[rows])

    def predict_throughput(self, features: Matrices) -> npt.NDArray[np.float64]:
        """float64[P]: relative throughput as TVM predicts it."""
        predicted: npt.NDArray[np.float64] = self.model._predict(list(features))
        return predicted

    @property
    def booster(self) -> xgboost.Booster:
        """XGBoost's own model."""
        return self.model.booster

    @booster.setter
    def booster(self, booster: xgboost.Booster) -> None:
        self.model.booster = booster


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps TVM from logging a line every 25 rounds of XGBoost."""
    logger = logging.getLogger("tvm.s_tir.meta_schedule.cost_model.xgb_model")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
