"""The baseline: TVM's own XGBoost cost model on TVM's own per-store features; talks to TVM."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import xgboost

from tvm_gnn_cost.datasets.programs import MeasuredPrograms, RaggedFeatures
from tvm_gnn_cost.which_tvm import has

if TYPE_CHECKING:
    from tvm_gnn_cost.models.auto_scheduler_trees import AutoSchedulerTrees


def boosted_trees(seed: int = 0) -> BoostedTrees | AutoSchedulerTrees:
    """The XGBoost cost model of the installed TVM: ``auto_scheduler``'s where it has that, or MetaSchedule's."""
    if has("auto_scheduler"):
        from tvm_gnn_cost.models.auto_scheduler_trees import AutoSchedulerTrees

        return AutoSchedulerTrees(seed)
    return BoostedTrees(seed)


class BoostedTrees:
    """MetaSchedule's ``XGBModel``, trained offline on stored programs instead of inside a search.

    Labels, packing of a program's stores, objective and settings are TVM's (``cost_model/xgb_model.py``).
    """

    def __init__(self, seed: int = 0) -> None:
        from tvm.s_tir.meta_schedule.cost_model import XGBModel
        from tvm.s_tir.meta_schedule.cost_model.xgb_model import XGBConfig

        self.model = XGBModel(config=XGBConfig(seed=seed), verbose_eval=0)

    def fit(self, programs: MeasuredPrograms) -> None:
        """Trains on all programs that have features; failed ones have throughput 0, as in TVM.

        Raises:
            ValueError: the programs carry no per-store features.
        """
        features = stored_features(programs)
        rows = [i for i in range(len(programs)) if len(features[i])]
        with _quiet():
            self.model._train([features[i] for i in rows], programs.throughput()[rows])

    def predict(self, programs: MeasuredPrograms) -> npt.NDArray[np.float64]:
        """float64[P]: predicted normalised throughput; 0 where a program has no features."""
        features = stored_features(programs)
        rows = [i for i in range(len(programs)) if len(features[i])]
        out = np.zeros(len(programs))
        out[rows] = self.model._predict([features[i] for i in rows])
        return out

    def save(self, path: Path) -> None:
        """Writes the booster in XGBoost's JSON."""
        self.model.booster.save_model(path)

    def load(self, path: Path) -> None:
        """Reads what :meth:`save` wrote.

        Raises:
            ValueError: the file is not one of XGBoost's.
        """
        self.model.booster = load_booster(path)


def load_booster(path: Path) -> xgboost.Booster:
    """Reads a model file of XGBoost.

    Raises:
        ValueError: it is none.
    """
    booster = xgboost.Booster()
    try:
        booster.load_model(path)
    except xgboost.core.XGBoostError as error:
        raise ValueError(f"{path}: not a model file of XGBoost ({str(error).splitlines()[0]})") from error
    return booster


def stored_features(programs: MeasuredPrograms) -> RaggedFeatures:
    """The per-store features of the programs.

    Raises:
        ValueError: there are none.
    """
    if programs.per_store_features is None:
        raise ValueError("the store has no per-store features, which XGBoost reads; extract it again with them")
    return programs.per_store_features


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """TVM logs every 25 rounds of XGBoost."""
    logger = logging.getLogger("tvm.s_tir.meta_schedule.cost_model.xgb_model")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)
