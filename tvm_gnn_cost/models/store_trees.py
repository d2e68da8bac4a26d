"""Boosted trees that score a program by the sum over its stores, beside the graph neural network."""

from __future__ import annotations

import threading
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
import xgboost
from torch import Tensor

from tvm_gnn_cost.errors import InputError
from tvm_gnn_cost.graphs.store_rows import StoreRows

#: Pairs of programs whose throughputs differ by a smaller share say nothing: that is noise.
_NOISE = 0.03
#: Programs that each is compared with at most.
_PARTNERS = 32
#: A failed program counts as if it had this throughput, relative to the task's best.
_SLOWEST = 1e-3

_SETTINGS = {
    "tree_method": "hist",
    "max_depth": 8,
    "eta": 0.08,
    "subsample": 0.8,
    "colsample_bytree": 0.25,
    "base_score": 0.0,  # by default it depends on the version of XGBoost
}

#: XGBoost refuses to predict while another thread sets a parameter; a prediction uses all cores anyway.
_PREDICTING = threading.Lock()

Floats = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class StoreTrees:
    """XGBoost's trees over ``graphs.store_rows``; a program's score is the sum over its stores.

    TVM's XGBModel sums over stores too, and fits the sum to the throughput. These learn the order of a task's programs
    (RankNet's loss, Burges et al. 2005) from the values of our graphs, which hold the loops around a store too.

    Attributes:
        booster: XGBoost's model.
        scale: What its output is multiplied with to be a score like the network's.
    """

    booster: xgboost.Booster
    scale: float = 1.0

    def score(self, stores: StoreRows) -> npt.NDArray[np.float64]:
        """Scores G programs by their stores: float64[G], higher is faster."""
        return np.bincount(stores.graph, self.of_each(stores), stores.size).astype(np.float64)

    def of_each(self, stores: StoreRows) -> npt.NDArray[np.float64]:
        """What each of S stores adds to its program's score: float64[S]."""
        with _PREDICTING:
            self.booster.set_param({"nthread": torch.get_num_threads()})
            found: npt.NDArray[np.float64] = self.scale * self.booster.inplace_predict(stores.rows).astype(np.float64)
        return found

    def to_tensor(self) -> Tensor:
        """XGBoost's own bytes, compressed: uint8[B]."""
        return torch.frombuffer(bytearray(zlib.compress(bytes(self.booster.save_raw("ubj")))), dtype=torch.uint8)

    @staticmethod
    def from_tensor(tensor: Tensor, scale: float, width: int) -> StoreTrees:
        """The inverse of :meth:`to_tensor`.

        Args:
            tensor: uint8[B].
            scale: See the attribute.
            width: Length of the rows that it must read.

        Raises:
            InputError: the bytes are damaged, or the trees read rows of another length.
        """
        booster = xgboost.Booster()
        try:
            booster.load_model(bytearray(zlib.decompress(tensor.numpy().tobytes())))
        except (zlib.error, xgboost.core.XGBoostError) as error:
            raise InputError(f"its trees are damaged ({str(error).splitlines()[0]})") from error
        # XGBoost 2 does not find it where XGBoost 3 writes it, and would add 0.5 for each store.
        booster.set_param({"base_score": _SETTINGS["base_score"]})
        if booster.num_features() != width:
            raise InputError(f"its trees read rows of {booster.num_features()} values, not of {width}")
        return StoreTrees(booster, scale)


def grow_trees(stores: StoreRows, throughput: Floats, task: npt.NDArray[np.int32], count: int, seed: int) -> StoreTrees:
    """Trees trained on P programs.

    Args:
        stores: Their stores.
        throughput: float32[P], relative to the best of the task; 0 for a failed program.
        task: int32[P], number of the task.
        count: Number of trees.
        seed: Seeds the pairs of programs, and the rows and columns that each tree is grown on.
    """
    fast, slow, weight = _pairs(throughput, task, seed)
    size = len(throughput)

    def gradient(of_each: Floats, _: xgboost.DMatrix) -> tuple[Floats, Floats]:
        """First and second derivative of the loss by the output of each store."""
        score = np.bincount(stores.graph, of_each, size)
        wrong = 1 / (1 + np.exp(score[fast] - score[slow]))
        slope, curve = wrong * weight, wrong * (1 - wrong) * weight
        first = np.bincount(slow, slope, size) - np.bincount(fast, slope, size)
        second = np.bincount(slow, curve, size) + np.bincount(fast, curve, size)
        return first[stores.graph].astype(np.float32), np.maximum(second, 1e-6)[stores.graph].astype(np.float32)

    threads = torch.get_num_threads()
    data = xgboost.DMatrix(stores.rows, nthread=threads)
    return StoreTrees(xgboost.train(_SETTINGS | {"seed": seed, "nthread": threads}, data, count, obj=gradient))


def _pairs(
    throughput: Floats, task: npt.NDArray[np.int32], seed: int
) -> tuple[Numbers, Numbers, npt.NDArray[np.float64]]:
    """Pairs of programs of a task: the faster ones, the slower ones, and weights with which each program counts alike.

    Every program meets all others of its task, or as many as :data:`_PARTNERS` drawn at random.
    """
    rng = np.random.default_rng(seed)
    logarithm = np.log(np.maximum(throughput, _SLOWEST))
    order = rng.permutation(len(task))
    order = order[np.argsort(task[order], kind="stable")]
    starts = np.searchsorted(task[order], task[order])
    sizes = np.searchsorted(task[order], task[order], side="right") - starts
    place = np.arange(len(order)) - starts
    found = []
    # The programs of a task in a circle: each meets the next ones, those in a distance of up to half of the circle.
    for distance in range(1, _PARTNERS // 2 + 1):
        meets = (2 * distance < sizes) | ((2 * distance == sizes) & (place < distance))
        one = np.flatnonzero(meets)
        other = starts[one] + (place[one] + distance) % sizes[one]
        found.append((order[one], order[other], 1 / np.minimum(sizes[one], _PARTNERS + 1)))
    one, other, weight = (np.concatenate(parts) for parts in zip(*found, strict=True))
    difference = logarithm[one] - logarithm[other]
    told = np.abs(difference) > _NOISE
    one, other, weight, difference = one[told], other[told], weight[told], difference[told]
    return np.where(difference > 0, one, other), np.where(difference > 0, other, one), weight
