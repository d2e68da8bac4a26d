"""Boosted trees that rank programs by the profiles of their graphs, beside the graph neural network."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import xgboost
from torch import Tensor

from tvm_gnn_cost.errors import InputError

Profiles = npt.NDArray[np.float32]


@dataclass(frozen=True)
class ProfileTrees:
    """XGBoost's trees over ``graphs.profile``; they rank the programs of a task (LambdaMART's pairwise loss).

    Attributes:
        booster: XGBoost's model.
        scale: What its output is multiplied with to be a score like the network's.
    """

    booster: xgboost.Booster
    scale: float = 1.0

    def score(self, profiles: Profiles) -> npt.NDArray[np.float64]:
        """Scores P programs, given their profiles float32[P, K]: float64[P], higher is faster."""
        self.booster.set_param({"nthread": torch.get_num_threads()})
        scores: npt.NDArray[np.float64] = self.scale * self.booster.inplace_predict(profiles).astype(np.float64)
        return scores

    def to_tensor(self) -> Tensor:
        """XGBoost's own bytes, compressed: uint8[B]."""
        return torch.frombuffer(bytearray(zlib.compress(bytes(self.booster.save_raw("ubj")))), dtype=torch.uint8)

    @staticmethod
    def from_tensor(tensor: Tensor, scale: float, width: int) -> ProfileTrees:
        """The inverse of :meth:`to_tensor`.

        Args:
            tensor: uint8[B].
            scale: See the attribute.
            width: Length of the profiles that it must read.

        Raises:
            InputError: the bytes are damaged, or the trees read profiles of another length.
        """
        booster = xgboost.Booster()
        try:
            booster.load_model(bytearray(zlib.decompress(tensor.numpy().tobytes())))
        except (zlib.error, xgboost.core.XGBoostError) as error:
            raise InputError(f"its trees are damaged ({str(error).splitlines()[0]})") from error
        if booster.num_features() != width:
            raise InputError(f"its trees read profiles of {booster.num_features()} values, not of {width}")
        return ProfileTrees(booster, scale)


def grow_trees(
    profiles: Profiles, throughput: npt.NDArray[np.float32], task: npt.NDArray[np.int32], count: int, seed: int
) -> ProfileTrees:
    """Trees trained on P programs.

    Args:
        profiles: float32[P, K].
        throughput: float32[P], relative to the best of the task; 0 for a failed program.
        task: int32[P], number of the task.
        count: Number of trees.
        seed: Seeds the rows and columns that each tree is grown on.
    """
    order = np.argsort(task, kind="stable")
    data = xgboost.DMatrix(profiles[order], throughput[order], qid=task[order], nthread=torch.get_num_threads())
    settings = {
        "objective": "rank:pairwise",
        "tree_method": "hist",
        "max_depth": 8,
        "eta": 0.05,
        "subsample": 0.8,
        "colsample_bytree": 0.15,
        "base_score": 0.0,  # by default it depends on the version of XGBoost
        "seed": seed,
        "nthread": torch.get_num_threads(),
    }
    return ProfileTrees(xgboost.train(settings, data, count))
