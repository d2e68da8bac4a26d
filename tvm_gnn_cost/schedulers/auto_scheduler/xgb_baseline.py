"""``auto_scheduler``'s XGBoost cost model, trained offline."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import xgboost
from tvm.auto_scheduler.cost_model import XGBModel, xgb_model

from tvm_gnn_cost.models.tvm_baselines import Matrices, OfflineXGB


class XGBBaseline(OfflineXGB):
    """``auto_scheduler``'s ``XGBModel`` with its labels, weights, objective and settings.

    Args:
        seed: Seed of XGBoost.
        model: TVM's model, maybe trained; a new one if None.
    """

    def __init__(self, seed: int = 0, model: XGBModel | None = None) -> None:
        # XGBModel takes the seed 0 for its default.
        self.model = XGBModel(verbose_eval=0, seed=seed + 1) if model is None else model

    def train(self, features: Matrices, throughput: npt.NDArray[np.float32], task: npt.NDArray[np.int32]) -> None:
        """Trains as TVM does, which stops early by the error on the training programs."""
        stores = np.empty(len(features), object)
        stores[:] = list(features)
        matrix = xgb_model.pack_sum_xgbmatrix(stores, throughput, task, throughput)
        self.model.bst = xgboost.train(
            self.model.xgb_params,
            matrix,
            num_boost_round=10000,
            obj=xgb_model.pack_sum_square_error,
            callbacks=[
                xgb_model.CustomCallback(
                    stopping_rounds=50,
                    metric="tr-p-rmse",
                    fevals=[xgb_model.pack_sum_rmse, xgb_model.pack_sum_average_peak_score(self.model.plan_size)],
                    evals=[(matrix, "tr")],
                    maximize=False,
                    verbose_eval=0,
                )
            ],
        )

    def predict_throughput(self, features: Matrices) -> npt.NDArray[np.float64]:
        """float64[P]: relative throughput as TVM predicts it, the sum over a program's stores."""
        matrix, packs = xgb_model.feature_to_pack_sum_xgbmatrix(list(features))
        predicted: npt.NDArray[np.float64] = xgb_model.predict_throughput_pack_sum(
            self.model.bst.predict(matrix), packs
        )
        return predicted

    @property
    def booster(self) -> xgboost.Booster:
        """XGBoost's own model."""
        return self.model.bst

    @booster.setter
    def booster(self, booster: xgboost.Booster) -> None:
        self.model.bst = booster
