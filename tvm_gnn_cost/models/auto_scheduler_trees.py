"""The baseline of Ansor: its own XGBoost cost model on its own per-store features; talks to a TVM up to 0.19."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import xgboost

from tvm_gnn_cost.datasets.programs import MeasuredPrograms
from tvm_gnn_cost.models.boosted_trees import load_booster, stored_features


class AutoSchedulerTrees:
    """``auto_scheduler``'s ``XGBModel``, trained offline on stored programs instead of inside a search.

    Labels, weights, packing of a program's stores, objective and settings are TVM's (``cost_model/xgb_model.py``).
    """

    def __init__(self, seed: int = 0) -> None:
        from tvm.auto_scheduler.cost_model import XGBModel

        # 0 would mean its default.
        self.model = XGBModel(verbose_eval=0, seed=seed + 1)

    def fit(self, programs: MeasuredPrograms) -> None:
        """Trains on all programs that have features; failed ones have throughput 0, as in TVM.

        Raises:
            ValueError: the programs carry no per-store features.
        """
        from tvm.auto_scheduler.cost_model import xgb_model as theirs

        features = stored_features(programs)
        rows = [i for i in range(len(programs)) if len(features[i])]
        target = programs.throughput()[rows]
        stores = np.empty(len(rows), object)
        stores[:] = [features[i] for i in rows]
        matrix = theirs.pack_sum_xgbmatrix(stores, target, programs.task[rows], target)
        self.model.bst = xgboost.train(
            self.model.xgb_params,
            matrix,
            num_boost_round=10000,
            obj=theirs.pack_sum_square_error,
            callbacks=[
                theirs.CustomCallback(
                    stopping_rounds=50,
                    metric="tr-p-rmse",
                    fevals=[theirs.pack_sum_rmse, theirs.pack_sum_average_peak_score(self.model.plan_size)],
                    evals=[(matrix, "tr")],
                    maximize=False,
                    verbose_eval=0,
                )
            ],
        )

    def predict(self, programs: MeasuredPrograms) -> npt.NDArray[np.float64]:
        """float64[P]: predicted normalised throughput; 0 where a program has no features."""
        from tvm.auto_scheduler.cost_model import xgb_model as theirs

        features = stored_features(programs)
        rows = [i for i in range(len(programs)) if len(features[i])]
        out = np.zeros(len(programs))
        matrix, packs = theirs.feature_to_pack_sum_xgbmatrix([features[i] for i in rows])
        out[rows] = theirs.predict_throughput_pack_sum(self.model.bst.predict(matrix), packs)
        return out

    def save(self, path: Path) -> None:
        """Writes the booster in XGBoost's JSON."""
        self.model.bst.save_model(path)

    def load(self, path: Path) -> None:
        """Reads what :meth:`save` wrote, or ``XGBModel.save``.

        Raises:
            ValueError: the file is not one of XGBoost's.
        """
        self.model.bst = load_booster(path)
